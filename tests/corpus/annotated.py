"""Annotated sentences of our own: senses that the words around them tell, and names."""

from __future__ import annotations

from itertools import product

from prosect.corpus.data.readers import SenseSentence, TaggedSentence

PLACES = {"river": ("river", "shore", "water", "ferry"), "money": ("loan", "rates", "coin", "debt")}
WALKS = {"river": ("swam", "rowed"), "money": ("paid", "signed")}


def senses() -> list[SenseSentence]:
    """48 sentences with "bank", and "right" in some of them; "old" has but one sense."""
    found = []
    pairs = product((0, 1), range(4), ("river", "money"), ("bank", "banks", "old bank"))
    for w, p, kind, bank in pairs:
        words = ["We", WALKS[kind][w], "by", "the", bank, "with", "the", PLACES[kind][p]]
        lemmas: list[str | None] = [None, None, None, "the", "bank", None, None, PLACES[kind][p]]
        named: list[str | None] = [*[None] * 4, kind, *[None] * 3]
        if p % 2:
            words.insert(0, "Right")
            lemmas.insert(0, "right")
            named.insert(0, "now" if kind == "river" else "due")
        words.append("." if w else "日本")
        lemmas.append(None)
        named.append("old" if not w else None)
        lemmas[-1] = "stop" if not w else None
        found.append(SenseSentence(tuple(words), tuple(lemmas), tuple(named)))
    return found


WHO = ("Ada Lovelace", "Grace", "Mary Anning Senior")
WHERE = ("Oslo", "New Delhi", "the river")


def names() -> list[TaggedSentence]:
    """36 sentences with names of people and places of one to three words."""
    found = []
    for who, where, verb, end in product(WHO, WHERE, ("saw", "left"), (".", "on # Thursday")):
        words, tags = [], []
        for part, kind in ((who, "person"), (verb, None), (where, "place"), (end, None)):
            named = kind is not None and part[0].isupper()
            for i, word in enumerate(part.split()):
                words.append(word)
                tags.append(f"{'I' if i else 'B'}-{kind}" if named else "O")
        found.append(TaggedSentence(tuple(words), tuple(tags)))
    return found

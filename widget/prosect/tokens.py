"""What a token is to a reader: its text, its place in the text, the word it belongs to, a label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import regex
from transformers import BatchEncoding, PreTrainedTokenizerBase

_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"})

_PRINTED = {*range(33, 127), *range(161, 173), *range(174, 256)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTED]
_BYTES = {chr(byte): byte for byte in _PRINTED} | {chr(256 + i): b for i, b in enumerate(_OTHERS)}
"""The characters that byte-level tokenizers write bytes as: printable ones as themselves."""


@dataclass(frozen=True)
class Token:
    """One position of the model's input.

    Attributes
    ----------
    text
        The characters of the reader's text that the token covers; a special token's own string; the
        label of one that is read in the place of another (``replacements``).
    id
        Its index in the vocabulary.
    span
        Start and end in the text (of the pair's second text where it comes from there), without
        surrounding white space; None for tokens that the tokenizer added.
    word
        Index of its word, counted over the whole input; None for tokens that the tokenizer added.
    special
        True for the control tokens of the model, such as [CLS] or <|endoftext|>.
    label
        What to show: the token as the model knows it without the marks of its tokenizer. A token
        that is only a piece of a character shows the character and which piece it is: 日¹⁄₃.
    """

    text: str
    id: int
    span: tuple[int, int] | None
    word: int | None
    special: bool
    label: str


@dataclass(frozen=True)
class Pieces:
    """What a tokenizer made of one text or pair, token by token.

    Attributes
    ----------
    ids, strings
        The tokens' indices in the vocabulary and their strings there.
    sequences
        Which of the texts each is of; None for tokens that the tokenizer added.
    spans
        Where in that text; None where unknown.
    words
        The tokenizer's own word numbers; None where it has none.
    """

    ids: Sequence[int]
    strings: Sequence[str]
    sequences: Sequence[int | None]
    spans: Sequence[tuple[int, int] | None]
    words: Sequence[int | None]

    @classmethod
    def of(cls, encoding: BatchEncoding, number: int) -> Pieces:
        """Read a fast tokenizer's encoding of the text of that number in its batch."""
        fast = encoding.encodings
        assert fast is not None
        one = fast[number]
        kept = [i for i, shown in enumerate(one.attention_mask) if shown]
        sequences = [one.sequence_ids[i] for i in kept]
        offsets = [one.offsets[i] for i in kept]
        return cls(
            ids=[one.ids[i] for i in kept],
            strings=[one.tokens[i] for i in kept],
            sequences=sequences,
            spans=[None if s is None else o for s, o in zip(sequences, offsets, strict=True)],
            words=[one.word_ids[i] for i in kept],
        )

    @classmethod
    def found(
        cls, ids: Sequence[int], texts: Sequence[str], tokenizer: PreTrainedTokenizerBase
    ) -> Pieces:
        """Find the tokens of a tokenizer without offsets in the texts, in order.

        A token that is not found as it is written (normalised, unknown) has no span.
        """
        strings = [str(tokenizer.convert_ids_to_tokens(i)) for i in ids]
        added = _special_ids(tokenizer)
        sequences = _sequences(ids, texts, tokenizer)
        spans: list[tuple[int, int] | None] = [None] * len(ids)
        ends = [0] * len(texts)
        for i, (id, sequence) in enumerate(zip(ids, sequences, strict=True)):
            if sequence is None:
                continue
            lower = texts[sequence].lower()  # where lower case has another length, as it is
            text = lower if len(lower) == len(texts[sequence]) else texts[sequence]
            bare = strings[i] if id in added else _bare(strings[i])
            start = text.find(bare.lower() if text is lower else bare, ends[sequence])
            if bare and start >= 0:
                ends[sequence] = start + len(bare)
                spans[i] = start, start + len(bare)
        return cls(ids, strings, sequences, spans, [None] * len(ids))


def read_tokens(
    pieces: Pieces, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> list[Token]:
    """Describe the tokens of one encoded text or pair of texts.

    Parameters
    ----------
    pieces
        What the tokenizer made of it.
    texts
        The text, or the two texts of the pair.
    """
    specials = _special_ids(tokenizer)
    sequences = pieces.sequences
    spans = [
        None if sequence is None or span is None else _trim(texts[sequence], *span)
        for sequence, span in zip(sequences, pieces.spans, strict=True)
    ]
    words = _words(pieces.words, sequences, spans, texts)
    labels = _labels(spans, sequences, texts, tokenizer)
    tokens = []
    for i, id in enumerate(pieces.ids):
        span, sequence, special = spans[i], sequences[i], id in specials
        if special or sequence is None:
            text = label = pieces.strings[i]
        elif span is None:
            text = label = _bare(pieces.strings[i]) or pieces.strings[i]
        else:
            text = texts[sequence][slice(*span)]
            # what is unknown to the model has no form of its own to show
            label = text if id == tokenizer.unk_token_id else labels[i]
            label = label if label.strip() else token_label(id, tokenizer)
        tokens.append(Token(text, id, span, words[i], special, label))
    return tokens


def in_place_of(token: Token, id: int, tokenizer: PreTrainedTokenizerBase) -> Token:
    """Another token of the vocabulary, read where this one stands in the text."""
    label = token_label(id, tokenizer)
    special = id in _special_ids(tokenizer)
    return Token(label, id, token.span, token.word, special, label)


def token_label(id: int, tokenizer: PreTrainedTokenizerBase) -> str:
    """How to show a token of the vocabulary on its own, without the marks of its tokenizer.

    Models may predict more tokens than their tokenizer knows: those are shown as their number.
    """
    known = tokenizer.convert_ids_to_tokens(id)
    if known is None:
        return f"⟨{id}⟩"
    string = str(known)
    decoded = str(tokenizer.decode([id])).removeprefix("##")
    shown = _unmarked(decoded) or decoded.translate(_VISIBLE)
    return string if id in _special_ids(tokenizer) or not shown else shown


def vocabulary_labels(ids: Iterable[int], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    r"""How to show tokens of the vocabulary side by side, so that they can be told apart.

    As :func:`token_label`, with the marks that a sentence makes superfluous: ## before a piece that
    continues a word, ␣ for the space before one that begins a word; and what cannot be seen by its
    number, as the byte \xe6 or the character \u200b.
    """
    specials = _special_ids(tokenizer)
    labels = []
    for id in ids:
        known = tokenizer.convert_ids_to_tokens(id)
        string = "" if known is None else str(known)
        shown = string if id in specials or not string else _marked(string, id, tokenizer)
        labels.append(shown or f"⟨{id}⟩")
    return labels


def _marked(string: str, id: int, tokenizer: PreTrainedTokenizerBase) -> str:
    # decoders drop the space before the first word, where it is written as a mark
    shown = string.replace("▁", " ") if "▁" in string else str(tokenizer.decode([id]))
    if "�" in shown and all(character in _BYTES for character in string):
        data = bytes(_BYTES[character] for character in string)
        shown = data.decode(errors="backslashreplace")
    shown = shown.translate(_VISIBLE)
    if not any(character.isprintable() for character in shown):
        shown = "".join(f"\\u{ord(character):04x}" for character in shown)
    return shown


def _unmarked(string: str) -> str:
    """A token's string without the mark of a word's beginning."""
    return string.replace("▁", " ").strip()


def _bare(string: str) -> str:
    """A token's string without any mark of a word's beginning, or of its going on."""
    bare = _unmarked(string)
    return bare.removeprefix("##").removesuffix("@@") or bare


def _sequences(
    ids: Sequence[int], texts: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> list[int | None]:
    """Which text each token is of, by what the tokenizer makes of each text alone.

    Where it makes something else of it there (Marian's targets), all but control tokens are taken.
    """
    sequences: list[int | None] = [None] * len(ids)
    added = _special_ids(tokenizer)
    end = 0
    for number, text in enumerate(texts):
        own = list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])  # pyright: ignore
        last = len(ids) - len(own)
        start = next((i for i in range(end, last + 1) if list(ids[i : i + len(own)]) == own), None)
        if start is not None:
            end = start + len(own)
            sequences[start:end] = [number] * len(own)
        else:
            sequences[end:] = [None if id in added else number for id in ids[end:]]
            end = len(ids)
    return sequences


def _special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The control tokens; "unknown" is not one, unless it does the work of another (GPT-2)."""
    named = tokenizer.special_tokens_map.items()
    controls = {str(value) for name, value in named if name != "unk_token"}
    controls |= set(tokenizer.all_special_tokens) - {str(tokenizer.unk_token)}
    return set(tokenizer.convert_tokens_to_ids(sorted(controls)))  # pyright: ignore


def ordinary_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The vocabulary in order, without control tokens and "unknown"."""
    special, unknown = _special_ids(tokenizer), tokenizer.unk_token_id
    ids = tokenizer.get_vocab().values()
    return sorted(id for id in ids if id not in special and id != unknown)


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without white space at its ends (byte-level tokens carry the space before them)."""
    piece = text[start:end]
    if not piece.strip():
        return start, end
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())


def _words(
    word_ids: Sequence[int | None],
    sequences: Sequence[int | None],
    spans: Sequence[tuple[int, int] | None],
    texts: Sequence[str],
) -> list[int | None]:
    """Number words over the whole input.

    A word begins where the tokenizer says so or after white space: some tokenizers do not split
    into words at all.
    """
    words: list[int | None] = []
    count = -1
    before: tuple[int, int | None, int] | None = None  # sequence, word and end of the last token
    for word, sequence, span in zip(word_ids, sequences, spans, strict=True):
        if sequence is None or span is None:
            words.append(None)
            before = None
            continue
        if (
            before is None
            or before[:2] != (sequence, word)
            or any(character.isspace() for character in texts[sequence][before[2] : span[0]])
        ):
            count += 1
        words.append(count)
        before = (sequence, word, span[1])
    return words


def _labels(
    spans: Sequence[tuple[int, int] | None],
    sequences: Sequence[int | None],
    texts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
) -> list[str]:
    """A label for every token of the text; empty for the others.

    What a reader calls a character is a grapheme: an emoji may be several code points, and a token
    may be a few bytes of one. Where several tokens share a grapheme, each shows it whole and says
    which piece it is.
    """
    edges = [_graphemes(text) for text in texts]
    covered: list[list[tuple[int, int, int]]] = []  # per token: (sequence, start, end) of graphemes
    for span, sequence in zip(spans, sequences, strict=True):
        if span is None or sequence is None:
            covered.append([])
            continue
        covered.append(
            [(sequence, a, b) for a, b in edges[sequence] if a < span[1] and b > span[0]]
        )
    total = Counter(grapheme for graphemes in covered for grapheme in graphemes)
    seen: Counter[tuple[int, int, int]] = Counter()
    labels = []
    for span, sequence, graphemes in zip(spans, sequences, covered, strict=True):
        if span is None or sequence is None:
            labels.append("")
            continue
        text = texts[sequence]
        seen.update(graphemes)
        if any(total[grapheme] > 1 for grapheme in graphemes):
            label = "".join(
                text[g[1] : g[2]] + (_fraction(seen[g], total[g]) if total[g] > 1 else "")
                for g in graphemes
            ).strip()
        else:
            label = _as_the_model_reads(text[slice(*span)], tokenizer)
        labels.append(label if label.strip() else text[slice(*span)].translate(_VISIBLE))
    return labels


def _graphemes(text: str) -> list[tuple[int, int]]:
    lengths = [len(grapheme) for grapheme in regex.findall(r"\X", text)]
    return list(pairwise(accumulate(lengths, initial=0)))


def _fraction(piece: int, pieces: int) -> str:
    return f"{piece}".translate(_SUPERSCRIPT) + "⁄" + f"{pieces}".translate(_SUBSCRIPT)


def _as_the_model_reads(piece: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """The piece after the tokenizer's normalisation (case, accents), without its space mark."""
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    normal = piece if normalizer is None else normalizer.normalize_str(piece)
    return _unmarked(normal) or piece.strip()

"""Tokens as readers see them: labels, spans, words and specials."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

import prosect
from prosect.tokens import Token, vocabulary_labels
from support.families import byte_pairs, random_lens, random_model, word_pieces


def tokens(text: str, family: str = "minilm") -> list[Token]:
    lens = prosect.load() if family == "minilm" else random_lens(family)
    return lens.trace(text).tokens


def labels(text: str, family: str = "minilm") -> list[str]:
    return [token.label for token in tokens(text, family) if not token.special]


@pytest.mark.parametrize("family", ["minilm", "bert", "roberta", "gpt2"])
@pytest.mark.parametrize(
    "text",
    ["The bank  raised\tits rates,\nso what?", "Thursday日本 👩‍👩‍👧!", "naïve “quotes” — ok"],
)
def test_spans_cut_the_text_in_order(family: str, text: str) -> None:
    end = 0
    for token in tokens(text, family):
        if token.span is None:
            continue
        assert token.text == text[slice(*token.span)] or token.special
        assert token.span[0] >= 0
        assert token.span[1] >= end
        end = token.span[1]
    assert end == len(text)


def test_pieces_of_one_word_share_it_and_lose_their_marks() -> None:
    pieces = [t for t in tokens("two ducklings") if not t.special]
    assert "".join(t.label for t in pieces) == "twoducklings"
    assert len(pieces) > 2
    assert [t.word for t in pieces] == [0] + [1] * (len(pieces) - 1)
    assert not any("#" in t.label for t in pieces)


def test_byte_level_marks_are_resolved() -> None:
    found = labels("The river bank, the road", "gpt2")
    assert "".join(found) == "Theriverbank,theroad"
    words = [t.word for t in tokens("The river bank", "gpt2")]
    assert words == sorted(words)
    assert set(words) == {0, 1, 2}


def test_a_character_of_several_tokens_is_shown_whole_with_the_piece() -> None:
    assert labels("日", "gpt2") == ["日¹⁄₃", "日²⁄₃", "日³⁄₃"]
    family = "👩‍👩‍👧"
    found = labels(family, "gpt2")
    assert len(found) == 18
    assert found[0] == family + "¹⁄₁₈"
    assert found[-1] == family + "¹⁸⁄₁₈"


def test_whole_characters_stay_whole() -> None:
    assert labels("日本語") == ["日", "本", "語"]
    assert labels("👩‍👩‍👧") == ["👩‍👩‍👧"]


def test_labels_show_what_the_model_reads() -> None:
    assert labels("The CAFÉ") == ["the", "cafe"]
    assert [t.text for t in tokens("The CAFÉ")][1:3] == ["The", "CAFÉ"]


def test_white_space_that_is_a_token_can_be_seen() -> None:
    assert all(label.strip() for label in labels("a\n\n  b", "gpt2"))
    assert any("⏎" in label for label in labels("a\n\n  b", "gpt2"))


def test_specials_are_told_apart() -> None:
    found = tokens("a [MASK] b")
    assert [t.label for t in found if t.special] == ["[CLS]", "[MASK]", "[SEP]"]
    assert found[0].span is None
    assert found[0].word is None
    mask = next(t for t in found if t.label == "[MASK]")
    assert mask.span == (2, 8)
    unknown = tokens("ॐ")[1]
    assert not unknown.special
    assert unknown.label == "ॐ"
    end = tokens("a<|endoftext|>", "gpt2")[-1]
    assert end.special


@pytest.mark.parametrize("text", ["<img src=x onerror=alert(1)>", "</script>", "x" * 200])
@pytest.mark.parametrize("family", ["minilm", "gpt2"])
def test_any_text_is_kept_as_text(text: str, family: str) -> None:
    if family == "gpt2" and len(text) == 200:
        text = "x" * 60
    assert "".join(labels(text, family)).replace("␣", "") == text.replace(" ", "")


class Words(PreTrainedTokenizer):
    """A tokenizer written in Python, as some models have it: it does not say where tokens are.

    Lower case, by white space; ``##`` or ``@@`` mark the pieces of a word.
    """

    model_input_names = ["input_ids", "attention_mask"]

    def __init__(self) -> None:
        special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>"}
        known = "the river bank road ros ##es duck@@ lings , ▁walk"
        self.known = [*special.values(), "</s>", *known.split()]
        super().__init__(eos_token="</s>", **special)

    @property
    def vocab_size(self) -> int:
        return len(self.known)

    def get_vocab(self) -> dict[str, int]:
        return {token: id for id, token in enumerate(self.known)}

    def _tokenize(self, text: str, **_: object) -> list[str]:
        split = {"roses": ["ros", "##es"], "ducklings": ["duck@@", "lings"], "walk": ["▁walk"]}
        words = text.lower().replace(",", " , ").split()
        return [piece for word in words for piece in split.get(word, [word])]

    def _convert_token_to_id(self, token: str) -> int:
        return self.known.index(token) if token in self.known else 1

    def _convert_id_to_token(self, index: int) -> str:
        return self.known[index]

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        second = [] if token_ids_1 is None else [*token_ids_1, 3]
        return [2, *token_ids_0, 3, *second]


def found(text: str, pair: str | None = None) -> list[Token]:
    lens = prosect.Lens(random_model("roberta"), Words())
    assert not lens.tokenizer.is_fast
    trace = lens.trace(text, pair)
    assert trace.terms().error < 1e-12
    return trace.tokens


def test_a_tokenizer_without_offsets_has_its_tokens_found_in_the_text() -> None:
    text = "The river  bank, the ROAD"
    tokens = found(text)
    assert [t.label for t in tokens] == ["<s>", "The", "river", "bank", ",", "the", "ROAD", "</s>"]
    spans = [t.span for t in tokens]
    assert spans == [None, (0, 3), (4, 9), (11, 15), (15, 16), (17, 20), (21, 25), None]
    assert all(t.text == text[slice(*t.span)] for t in tokens if t.span is not None)
    assert [t.special for t in tokens] == [True, *[False] * 6, True]


def test_words_are_then_told_by_white_space() -> None:
    tokens = found("the roses, walk ducklings")
    assert [t.word for t in tokens] == [None, 0, 1, 1, 1, 2, 3, 3, None]
    assert [t.label for t in tokens[1:-1]] == ["the", "ros", "es", ",", "walk", "duck", "lings"]
    assert [t.span for t in tokens[2:4]] == [(4, 7), (7, 9)]


def test_a_token_that_is_not_in_the_text_has_no_span_and_those_after_it_have() -> None:
    tokens = found("the willow bank")
    willow = tokens[2]
    assert (willow.text, willow.span, willow.word, willow.special) == ("<unk>", None, None, False)
    assert tokens[3].span == (11, 15)


def test_a_text_of_unknown_words_is_not_an_empty_one() -> None:
    assert [t.label for t in found("willow oak")] == ["<s>", "<unk>", "<unk>", "</s>"]
    with pytest.raises(prosect.ProsectError, match="The text is empty"):
        found("  ")


def test_the_second_text_of_a_pair_is_found_in_itself() -> None:
    tokens = found("the river bank", "bank the road")
    assert [t.span for t in tokens] == [
        *(None, (0, 3), (4, 9), (10, 14)),
        *(None, (0, 4), (5, 8), (9, 13), None),
    ]
    assert [t.word for t in tokens] == [None, 0, 1, 2, None, 3, 4, 5, None]


def test_special_tokens_written_in_the_text_are_found_there() -> None:
    tokens = found("the </s> bank")
    assert (tokens[2].special, tokens[2].span, tokens[2].label) == (True, (4, 8), "</s>")
    assert tokens[3].span == (9, 13)


def test_a_tokenizer_without_offsets_traces_batches() -> None:
    lens = prosect.Lens(random_model("roberta"), Words())
    texts = ["the river", "the river bank and the road", "road"]
    for trace, text in zip(lens.traces(texts), texts, strict=True):
        assert trace.tokens == lens.trace(text).tokens


def test_white_space_without_a_span_of_its_own_can_be_seen_too() -> None:
    found = tokens("a   b", "roberta")
    assert all(token.label.strip() for token in found)
    assert any("␣" in token.label for token in found)


def test_no_two_words_of_a_vocabulary_look_alike() -> None:
    demo = prosect.load().tokenizer
    for tokenizer in (demo, word_pieces(), byte_pairs(), byte_pairs(encloses=True)):
        shown = vocabulary_labels(range(len(tokenizer)), tokenizer)
        assert len(set(shown)) == len(tokenizer)
        assert all(label.strip() and "�" not in label for label in shown if label != "�")


def test_words_of_the_vocabulary_keep_their_marks() -> None:
    pieces, pairs = word_pieces(), byte_pairs()
    piece = next(string for string in pieces.get_vocab() if string.startswith("##"))
    ids = [pieces.get_vocab()[string] for string in ("a", piece, "[CLS]")]
    assert vocabulary_labels(ids, pieces) == ["a", piece, "[CLS]"]
    word = next(
        string for string in pairs.get_vocab() if string.startswith("Ġ") and len(string) > 1
    )
    strings = [word, "Ċ", "æ", "Ā", "a", "<|endoftext|>"]
    ids = [pairs.get_vocab()[string] for string in strings]
    expected = ["␣" + word[1:], "⏎", "\\xe6", "\\u0000", "a", "<|endoftext|>"]
    assert vocabulary_labels(ids, pairs) == expected
    assert vocabulary_labels([99_999], pairs) == ["⟨99999⟩"]


def test_marks_that_a_decoder_drops_are_kept_and_odd_strings_can_be_seen() -> None:
    words = ["▁river", "river", "▁", "\u200b", "", "x" * 300, "<0x0A>", "�", "<b>"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "�"))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(left=1),
        ]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="�")
    assert vocabulary_labels(range(len(words)), fast) == [
        *("␣river", "river", "␣", "\\u200b", "⟨4⟩", "x" * 300, "⏎", "�", "<b>")
    ]

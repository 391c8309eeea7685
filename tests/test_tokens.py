"""Tokens as readers see them: labels, spans, words and specials."""

from __future__ import annotations

import pytest

import prosect
from families import random_lens
from prosect.tokens import Token


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
    assert words == sorted(words)  # pyright: ignore[reportArgumentType]
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

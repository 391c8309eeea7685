from __future__ import annotations

import pytest

import prosect
from corpus.annotated import senses
from prosect.corpus.data.readers import TaggedSentence
from prosect.corpus.data.words import listed


def test_what_is_no_sentence_is_refused() -> None:
    for wrong, message in (
        ("text", "not str"),
        (3, "not int"),
        (["text"], "Sentence 0 must be a TaggedSentence.*not str"),
        (senses()[:1], "not SenseSentence"),
    ):
        with pytest.raises(TypeError, match=message):
            listed(wrong, TaggedSentence)  # type: ignore[arg-type]
    with pytest.raises(prosect.ProsectError, match="There are no sentences"):
        listed([], TaggedSentence)

from __future__ import annotations

import pytest

import prosect
from corpus.annotated import senses
from prosect.corpus.data.readers import TaggedSentence
from prosect.corpus.data.words import checked_sentences


def test_what_is_no_sentence_is_refused() -> None:
    for wrong, message in (
        ("text", "got str"),
        (3, "got int"),
        (["text"], "Sentence 0 must be a TaggedSentence.*got str"),
        (senses()[:1], "got SenseSentence"),
    ):
        with pytest.raises(TypeError, match=message):
            checked_sentences(wrong, TaggedSentence)
    with pytest.raises(prosect.ProsectError, match="at least one sentence"):
        checked_sentences([], TaggedSentence)

"""Words of annotated sentences: requests for their vectors, and groups of copies."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Int

from prosect.corpus.data.readers import Sentence, text_of
from prosect.errors import ProsectError

SentenceType = TypeVar("SentenceType", bound=Sentence)
WordPosition = tuple[int, int]
"""The index of a sentence and the index of a word in it."""


@dataclass(frozen=True)
class WordRequest:
    """A text and the words in it whose vectors are requested.

    Attributes
    ----------
    number
        The index of the sentence.
    text
        The text that the model reads.
    words
        The indices of the words.
    spans
        The start and end of each word in the text.
    """

    number: int
    text: str
    words: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]


def normalized_text(sentence: Sentence) -> str:
    """The text of a sentence with single spaces, which is equal for its copies."""
    return " ".join(text_of(sentence).split())


def group_ids(keys: Iterable[Hashable]) -> Int[np.ndarray, "key"]:
    """Number the distinct keys in order of first occurrence: equal keys share an id."""
    ids: dict[Hashable, int] = {}
    return np.array([ids.setdefault(key, len(ids)) for key in keys], dtype=int)


def checked_sentences(
    sentences: Iterable[SentenceType], kind: type[SentenceType]
) -> list[SentenceType]:
    """Return a list of the sentences, all of one type.

    Raises
    ------
    TypeError
        If a sentence is of another type.
    ProsectError
        If there is no sentence.
    """
    if isinstance(sentences, str) or not isinstance(sentences, Iterable):
        raise TypeError(
            f"sentences must be a list of {kind.__name__}, as prosect.corpus.readers returns, "
            f"got {type(sentences).__name__}."
        )
    checked = list(sentences)
    for number, sentence in enumerate(checked):
        if not isinstance(sentence, kind):
            raise TypeError(
                f"Sentence {number} must be a {kind.__name__}, as prosect.corpus.readers returns, "
                f"got {type(sentence).__name__}."
            )
    if not checked:
        raise ProsectError("sentences must contain at least one sentence, got none.")
    return checked

"""Words of annotated sentences: which are asked for, which sentences are copies."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Int

from prosect.corpus.data.readers import Sentence, text_of
from prosect.errors import ProsectError

Kind = TypeVar("Kind", bound=Sentence)
Place = tuple[int, int]
"""The number of a sentence and of a word in it."""


@dataclass(frozen=True)
class Wanted:
    """A text and the words that are wanted of it.

    Attributes
    ----------
    number
        Of the sentence.
    text
        What the model reads.
    words
        The numbers of the words.
    spans
        Where in the text each of them is.
    """

    number: int
    text: str
    words: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]


def wording(sentence: Sentence) -> str:
    """What copies of a sentence have in common: the text, whatever its white space."""
    return " ".join(text_of(sentence).split())


def alike(keys: Iterable[Hashable]) -> Int[np.ndarray, "key"]:
    """The number of each among the different ones, in the order in which they first come."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=int)


def listed(sentences: Iterable[Kind], kind: type[Kind]) -> list[Kind]:
    """The sentences, all of that kind.

    Raises
    ------
    TypeError
        If they are of another.
    ProsectError
        If there is none.
    """
    if isinstance(sentences, str) or not isinstance(sentences, Iterable):
        raise TypeError(
            f"Give sentences as prosect.corpus.readers reads them, not {type(sentences).__name__}."
        )
    found = list(sentences)
    for number, sentence in enumerate(found):
        if not isinstance(sentence, kind):
            raise TypeError(
                f"Sentence {number} must be a {kind.__name__}, as prosect.corpus.readers makes "
                f"them, not {type(sentence).__name__}."
            )
    if not found:
        raise ProsectError("There are no sentences: give at least ten.")
    return found

"""Texts from wherever they are: a list, a generator, a file, a column of a dataset."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from prosect.errors import ProsectError
from prosect.tokens import Token

Texts = Iterable[str] | os.PathLike[str]
"""Many texts: any iterable, the path of a file with a text a line, or a dataset (see ``read``)."""


@dataclass(frozen=True)
class Numbered:
    """A text that says which one it is, from 0."""

    number: int
    text: str


def numbered(texts: list[str]) -> list[Numbered]:
    """Number the texts in their order."""
    return [Numbered(number, text) for number, text in enumerate(texts)]


def text_of(item: Numbered) -> str:
    """The text without its number."""
    return item.text


def lot(text: str, seed: int) -> float:
    """A number in [0, 1) that the text draws: the same wherever it stands, and for its copies.

    Copies may differ in white space.
    """
    drawn = blake2b(
        f"{seed} {' '.join(text.split())}".encode("utf-8", "surrogatepass"), digest_size=8
    ).digest()
    return (int.from_bytes(drawn, "big") >> 11) / 2**53


def counted(tokens: Sequence[Token], special: bool) -> list[int]:
    """The positions of the tokens that count: all, or those that are not special."""
    return [i for i, token in enumerate(tokens) if special or not token.special]


def read(texts: Texts | Any, column: str = "text") -> list[str]:
    """List the texts, without those that are empty or only white space.

    Parameters
    ----------
    texts
        An iterable of strings; the path of a UTF-8 file with a text a line; or a dataset of the
        ``datasets`` library, whose column of texts is read.
    column
        The name of that column.

    Raises
    ------
    TypeError
        If a text is not a string.
    ProsectError
        If there is no text, the file cannot be read, or the dataset has no such column.
    """
    if isinstance(texts, str):
        raise TypeError(
            "An experiment takes many texts: give a list of them, "
            "or a file with a text a line as pathlib.Path(...)."
        )
    if isinstance(texts, os.PathLike):
        listed = _lines(Path(texts))
    elif hasattr(texts, "column_names"):
        listed = _column(texts, column)
    elif hasattr(texts, "columns") or isinstance(texts, Mapping):
        raise TypeError(
            f"A {type(texts).__name__} has columns: give the one with the texts, as in table['text']."
        )
    elif isinstance(texts, Iterable):
        listed = list(texts)
    else:
        raise TypeError(f"Texts are strings, a file or a dataset, not {type(texts).__name__}.")
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise TypeError(f"Text {number} must be a string, not {type(text).__name__}.")
    kept = [text for text in listed if text.strip()]
    if not kept:
        raise ProsectError("There is no text that is not empty: give at least one.")
    return kept


def _lines(path: Path) -> list[str]:
    try:
        lines = path.expanduser().read_text(encoding="utf-8-sig").split("\n")
        return [line.removesuffix("\r") for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        raise ProsectError(f"Cannot read texts from {path}: {error}.") from error


def _column(dataset: Any, column: str) -> list[str]:
    names = dataset.column_names
    if isinstance(names, dict):  # a dataset of several splits
        raise ProsectError(
            f"The dataset has the splits {', '.join(names)}: give one, as in dataset['train']."
        )
    if column not in names:
        raise ProsectError(
            f"The dataset has no column {column!r}: name one of {', '.join(names)} with column=."
        )
    return list(dataset[column])

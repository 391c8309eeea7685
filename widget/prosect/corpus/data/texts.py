"""Read texts from a list, a generator, a file or a column of a dataset."""

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
"""Many texts: an iterable, the path of a file with one text per line, or a dataset (see ``read``)."""


@dataclass(frozen=True)
class NumberedText:
    """A text with its index in the list of texts, from 0."""

    number: int
    text: str


def number_texts(texts: list[str]) -> list[NumberedText]:
    """Number the texts in order."""
    return [NumberedText(number, text) for number, text in enumerate(texts)]


def text_of(item: NumberedText) -> str:
    """The text without its number."""
    return item.text


def hash_fraction(text: str, seed: int) -> float:
    """A deterministic value in [0, 1), equal for texts that differ only in white space."""
    digest = blake2b(
        f"{seed} {' '.join(text.split())}".encode("utf-8", "surrogatepass"), digest_size=8
    ).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def selected_positions(tokens: Sequence[Token], special: bool) -> list[int]:
    """The positions of all tokens, or without ``special`` those of the tokens that are not special."""
    return [i for i, token in enumerate(tokens) if special or not token.special]


def read(texts: Texts | Any, column: str = "text") -> list[str]:
    """Return a list of the texts, without those that are empty or only white space.

    Parameters
    ----------
    texts
        An iterable of strings; the path of a UTF-8 file with one text per line; or a dataset of the
        ``datasets`` library.
    column
        The name of the dataset's column of texts.

    Raises
    ------
    TypeError
        If a text is not a string.
    ProsectError
        If there is no text, the file cannot be read, or the dataset has no such column.
    """
    if isinstance(texts, str):
        raise TypeError(
            "texts must be a list of strings or a file with one text per line, as "
            "pathlib.Path(...), got one string."
        )
    if isinstance(texts, os.PathLike):
        strings = _read_lines(Path(texts))
    elif hasattr(texts, "column_names"):
        strings = _read_column(texts, column)
    elif hasattr(texts, "columns") or isinstance(texts, Mapping):
        raise TypeError(
            f"texts must be one column of the {type(texts).__name__}, such as table['text'], "
            "got all of it."
        )
    elif isinstance(texts, Iterable):
        strings = list(texts)
    else:
        raise TypeError(
            f"texts must be a list of strings, a file or a dataset, got {type(texts).__name__}."
        )
    for number, text in enumerate(strings):
        if not isinstance(text, str):
            raise TypeError(f"Text {number} must be a string, got {type(text).__name__}.")
    kept = [text for text in strings if text.strip()]
    if not kept:
        raise ProsectError("texts must contain at least one text that is not empty.")
    return kept


def _read_lines(path: Path) -> list[str]:
    try:
        lines = path.expanduser().read_text(encoding="utf-8-sig").split("\n")
        return [line.removesuffix("\r") for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        raise ProsectError(f"Cannot read texts from {path}: {error}.") from error


def _read_column(dataset: Any, column: str) -> list[str]:
    names = dataset.column_names
    if isinstance(names, dict):  # a dataset of several splits
        raise ProsectError(
            f"texts must be one split of the dataset, such as dataset['train'], "
            f"got the splits {', '.join(names)}."
        )
    if column not in names:
        raise ProsectError(
            f"column must be one of {', '.join(map(str, names))} of the dataset, got {column!r}."
        )
    return list(dataset[column])

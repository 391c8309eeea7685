"""Texts from wherever they are: a list, a generator, a file, a column of a dataset."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prosect.errors import ProsectError

Texts = Iterable[str] | os.PathLike[str]
"""Many texts: any iterable, the path of a file with a text a line, or a dataset (see ``read``)."""


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
    else:
        listed = list(texts)
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise TypeError(f"Text {number} must be a string, not {type(text).__name__}.")
    kept = [text for text in listed if text.strip()]
    if not kept:
        raise ProsectError("There is no text that is not empty: give at least one.")
    return kept


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
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

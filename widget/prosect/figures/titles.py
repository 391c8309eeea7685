"""Titles that are not cut where a model has a long name."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

WIDTH = 36
"""How many characters fit above a panel."""
LINE = 0.2
"""The height of a line of a title, in inches."""
WHOLE = 60
"""How many characters fit above a figure in a notebook."""


def wrapped(title: str, width: int = WIDTH) -> str:
    """A title in lines of so many characters."""
    return "\n".join(wrap(title, width))


def above(titles: Sequence[str]) -> float:
    """How many inches higher a figure has to be for titles of several lines."""
    return LINE * max(title.count("\n") for title in titles)


def shortened(title: str) -> str:
    """A title of one line; of a long one, its beginning and end."""
    half = WHOLE // 2
    return title if len(title) <= WHOLE else f"{title[: half - 1]}…{title[-half:]}"

"""Wrap or shorten titles that contain long model names."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

WIDTH = 36
"""The number of characters that fit above a panel."""
LINE_HEIGHT = 0.2
"""The height of one line of a title, in inches."""
NOTEBOOK_WIDTH = 60
"""The number of characters that fit above a figure in a notebook."""


def wrapped(title: str, width: int = WIDTH) -> str:
    """Wrap a title to lines of at most ``width`` characters."""
    return "\n".join(wrap(title, width))


def extra_height(titles: Sequence[str]) -> float:
    """The extra height in inches that a figure needs for titles of several lines."""
    return LINE_HEIGHT * max(title.count("\n") for title in titles)


def shortened(title: str) -> str:
    """Return a title of one line; a long one keeps its start and end."""
    half = NOTEBOOK_WIDTH // 2
    return title if len(title) <= NOTEBOOK_WIDTH else f"{title[: half - 1]}…{title[-half:]}"

"""Figures for papers: matplotlib's, which notebooks show too."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING

from prosect.optional import needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def paper_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches.

    It belongs to no window and is not kept by pyplot, so many can be made; a notebook shows it
    where it is the value of a cell.

    Raises
    ------
    ProsectError
        If matplotlib is not installed.
    """
    figure = needs("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    figure._repr_png_ = partial(_png, figure)
    return figure


def _png(figure: Figure) -> bytes:
    content = BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()

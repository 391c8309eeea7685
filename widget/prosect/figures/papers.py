"""Empty matplotlib figures for papers, which notebooks display too."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING

from prosect.optional import needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def paper_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches.

    It belongs to no window and is not registered with pyplot, so its memory is freed with it. A
    notebook displays it as the value of a cell.

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

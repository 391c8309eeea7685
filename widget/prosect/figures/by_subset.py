"""Bars by subset of the terms: a bqplot figure for notebooks and a matplotlib figure for papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from bqplot import Axis, LinearScale, OrdinalScale
from bqplot import Bars as BqplotBars
from bqplot.figure import Figure

from prosect.figures.by_layer import OTHERS
from prosect.optional import needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure as PaperFigure


@dataclass(frozen=True)
class Bars:
    """A figure by subset.

    Attributes
    ----------
    name
        For the legend.
    mean
        [subset].
    error
        [subset], drawn as an error bar of one error to each side; None for none.
    runs
        [run, subset], drawn as dots; None for none.
    baseline
        Drawn as a dashed line; None for none.
    """

    name: str
    mean: np.ndarray
    error: np.ndarray | None = None
    runs: np.ndarray | None = None
    baseline: float | None = None


def by_subset(subsets: Sequence[str], bars: Sequence[Bars], axis: str, title: str) -> Figure:
    """Draw bars by subset with bqplot, side by side."""
    scales = {"x": OrdinalScale(), "y": LinearScale(min=0.0)}
    mark = BqplotBars(
        x=list(subsets),
        y=np.stack([bar.mean for bar in bars]),
        scales=scales,
        type="grouped",
        colors=list(OTHERS[: len(bars)]),
        labels=[bar.name for bar in bars],
        display_legend=True,
        padding=0.2,
    )
    axes = [
        Axis(
            scale=scales["x"], grid_lines="none", tick_rotate=-40, tick_style={"text-anchor": "end"}
        ),
        Axis(scale=scales["y"], orientation="vertical", label=axis, tick_format=".2"),
    ]
    return Figure(marks=[mark], axes=axes, title=title, legend_location="top-left")


def by_subset_for_papers(
    subsets: Sequence[str], bars: Sequence[Bars], axis: str, title: str
) -> PaperFigure:
    """Draw bars by subset with matplotlib, side by side.

    Raises
    ------
    ProsectError
        If matplotlib is not installed.
    """
    figures = needs("matplotlib.figure")
    figure = figures.Figure(figsize=(1.6 + 0.42 * len(subsets), 3.2), layout="constrained")
    place = figure.subplots()
    width = 0.8 / len(bars)
    for number, (bar, colour) in enumerate(zip(bars, OTHERS, strict=False)):
        x = np.arange(len(subsets)) + (number - (len(bars) - 1) / 2) * width
        place.bar(x, bar.mean, width, color=colour, alpha=0.85, label=bar.name)
        if bar.error is not None:
            place.errorbar(x, bar.mean, bar.error, fmt="none", ecolor="#333333", elinewidth=0.8)
        for run in () if bar.runs is None else bar.runs:
            place.plot(x, run, ".", color="#333333", markersize=2.5)
        if bar.baseline is not None:
            place.axhline(bar.baseline, color=colour, linewidth=0.8, linestyle="--")
    place.set_xticks(range(len(subsets)), subsets, rotation=40, ha="right")
    place.set_ylabel(axis)
    place.set_title(title, fontsize="medium")
    place.spines[["top", "right"]].set_visible(False)
    place.legend(frameon=False, fontsize="small")
    return figure

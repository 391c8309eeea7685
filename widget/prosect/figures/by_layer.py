"""Draw lines by layer: with bqplot for notebooks and with matplotlib for papers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from bqplot import Axis, LinearScale, Lines
from bqplot.figure import Figure

from prosect.colours import TERM_COLOURS
from prosect.figures.papers import paper_figure
from prosect.figures.titles import extra_height, shortened, wrapped
from prosect.optional import needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure as PaperFigure

OTHER_COLOURS = ("#4e79a7", "#e08214", "#2a9d74", "#8f5fb0", "#9aa0a6", "#b5485d")
"""The colours of lines that are not terms, in order."""
MIN_RELATIVE_RANGE = 1e-3
"""Values whose range is smaller, relative to the largest value, are drawn as equal."""


@dataclass(frozen=True)
class Line:
    """A quantity by layer.

    Attributes
    ----------
    name
        The name of a term, which determines the colour, or any other name.
    mean
        [layer], NaN for missing values.
    spread
        [layer], drawn as a band of mean ± spread; None for no band.
    first
        The layer of the first value: 0 for the embeddings.
    """

    name: str
    mean: np.ndarray
    spread: np.ndarray | None = None
    first: int = 0

    @property
    def layers(self) -> np.ndarray:
        """The layers of the values."""
        return np.arange(self.first, self.first + len(self.mean))

    @property
    def label(self) -> str:
        """The label in the legend."""
        return self.name.replace("_", "-")


def by_layer(lines: Sequence[Line], axis: str, title: str) -> Figure:
    """Draw lines by layer with bqplot."""
    scales = {"x": LinearScale(), "y": LinearScale()}
    marks = [
        Lines(
            x=line.layers,
            y=line.mean,
            scales=scales,
            colors=[colour],
            labels=[line.label],
            display_legend=True,
            marker="circle",
            marker_size=24,
        )
        for line, colour in zip(lines, _colours(lines), strict=True)
    ]
    ticks = lines[0].layers
    axes = [
        Axis(
            scale=scales["x"],
            label="layer",
            tick_values=ticks,
            tick_format="d",
            grid_lines="none",
            label_offset="2.5em",
        ),
        Axis(scale=scales["y"], orientation="vertical", label=axis, tick_format=".2"),
    ]
    return Figure(marks=marks, axes=axes, title=shortened(title), legend_location="top-right")


def by_layer_for_papers(panels: Mapping[str, Sequence[Line]], axis: str) -> PaperFigure:
    """Draw lines by layer with matplotlib, one panel for each entry.

    Raises
    ------
    ProsectError
        If matplotlib is not installed.
    """
    ticker = needs("matplotlib.ticker")
    width = max(4.2, 3.4 * len(panels))
    titles = [wrapped(title) for title in panels]
    figure = paper_figure(width + 1.0, 3.2 + extra_height(titles))
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, title, lines in zip(row, titles, panels.values(), strict=True):
        if not _far_from_zero(panels.values()):
            axes.axhline(0, color="#888888", linewidth=0.6)
        for line, colour in zip(lines, _colours(lines), strict=True):
            axes.plot(line.layers, line.mean, ".-", color=colour, label=line.label)
            if line.spread is not None:
                low, high = line.mean - line.spread, line.mean + line.spread
                axes.fill_between(line.layers, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel("layer")
        axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        axes.spines[["top", "right"]].set_visible(False)
    row[0].set_ylabel(wrapped(axis, 28))
    handles, labels = row[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    return figure


def _far_from_zero(panels: Iterable[Sequence[Line]]) -> bool:
    """Whether the lines would lie in the upper third of axes that start at 0, and differ."""
    means = np.concatenate([line.mean for lines in panels for line in lines])
    low, high = np.fmin.reduce(means), np.fmax.reduce(means)
    return bool(2 / 3 * high < low < (1 - MIN_RELATIVE_RANGE) * high)


def _colours(lines: Sequence[Line]) -> list[str]:
    others = iter(OTHER_COLOURS * (1 + len(lines) // len(OTHER_COLOURS)))
    return [TERM_COLOURS.get(line.name) or next(others) for line in lines]

"""Scores by subset of the terms, and how subsets agree: for notebooks and for papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from bqplot import Axis, ColorAxis, ColorScale, GridHeatMap, LinearScale, Lines, OrdinalScale
from bqplot import Scatter as Dots
from bqplot.figure import Figure

from prosect.figures.by_layer import OTHERS
from prosect.figures.papers import paper_figure
from prosect.optional import needs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as PaperFigure

RAMP = ("#f2f6fa", "#9dbbd8", "#1f4e79")
"""From little agreement to full agreement."""
SLANTED = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}


@dataclass(frozen=True)
class Points:
    """A score by subset.

    Attributes
    ----------
    name
        What it is of.
    labels
        Of the subsets.
    value
        [subset].
    error
        [subset], how far the bar goes to each side; NaN for none.
    """

    name: str
    labels: Sequence[str]
    value: np.ndarray
    error: np.ndarray

    @property
    def bars(self) -> np.ndarray:
        """[subset], the bars, of no length where there is none."""
        return np.nan_to_num(self.error)


@dataclass(frozen=True)
class Level:
    """A score that depends on no subset, such as a baseline's; its error is 0 where it has none."""

    name: str
    value: float
    error: float = 0.0


def by_subset(points: Sequence[Points], levels: Sequence[Level], axis: str, title: str) -> Figure:
    """Draw scores by subset with bqplot, dots with bars, and levels as lines."""
    labels = list(points[0].labels)
    scales = {"x": OrdinalScale(domain=labels), "y": LinearScale()}
    marks = []
    for one, colour in zip(points, OTHERS, strict=False):
        low, high = one.value - one.bars, one.value + one.bars
        marks += [
            Lines(
                x=[[label, label] for label in labels],
                y=np.stack([low, high], 1),
                scales=scales,
                colors=[colour],
                stroke_width=1.5,
            ),
            Dots(
                x=labels,
                y=one.value,
                scales=scales,
                colors=[colour],
                default_size=36,
                labels=[one.name],
                display_legend=True,
            ),
        ]
    for level, colour in zip(levels, OTHERS[::-1], strict=False):
        marks.append(
            Lines(
                x=labels,
                y=np.full(len(labels), level.value),
                scales=scales,
                colors=[colour],
                line_style="dashed",
                labels=[level.name],
                display_legend=True,
            )
        )
    axes = [
        Axis(
            scale=scales["x"],
            label="terms",
            grid_lines="none",
            tick_rotate=-60,
            tick_style={"text-anchor": "end"},
            label_offset="4.5em",
        ),
        Axis(scale=scales["y"], orientation="vertical", label=axis, tick_format=".2f"),
    ]
    margin = {"top": 60, "bottom": 90, "left": 70, "right": 20}
    return Figure(
        marks=marks, axes=axes, title=title, legend_location="bottom-right", fig_margin=margin
    )


def by_subset_for_papers(
    panels: Mapping[str, Sequence[Points]], levels: Sequence[Level], axis: str
) -> PaperFigure:
    """Draw scores by subset with matplotlib, a panel for each entry.

    Raises
    ------
    ProsectError
        If matplotlib is not installed.
    """
    figure = paper_figure(max(6.0, 4.6 * len(panels)), 4.2)
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for place, (title, points) in zip(row, panels.items(), strict=True):
        for i, (one, colour) in enumerate(zip(points, OTHERS, strict=False)):
            at = np.arange(len(one.labels)) + 0.3 * ((i + 0.5) / len(points) - 0.5)
            place.errorbar(at, one.value, one.bars, fmt="o", ms=4, color=colour, label=one.name)
        for level, colour in zip(levels, OTHERS[::-1], strict=False):
            place.axhline(level.value, color=colour, linestyle="--", linewidth=1, label=level.name)
            low, high = level.value - level.error, level.value + level.error
            place.axhspan(low, high, color=colour, alpha=0.12, linewidth=0)
        place.set_title(title, fontsize="medium")
        place.set_xticks(range(len(points[0].labels)), points[0].labels, **SLANTED)
        place.set_xlabel("terms")
        place.spines[["top", "right"]].set_visible(False)
    row[0].set_ylabel(axis)
    handles, labels = row[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(panels), frameon=False)
    return figure


def matrix(values: pd.DataFrame, title: str) -> Figure:
    """Draw an agreement matrix with bqplot; the first subset is at the top left."""
    scales = {
        "row": OrdinalScale(reverse=True),
        "column": OrdinalScale(),
        "color": ColorScale(colors=list(RAMP), min=_lowest(values), max=1.0),
    }
    cells = GridHeatMap(
        color=values.to_numpy(),
        row=list(values.index),
        column=list(values.columns),
        scales=scales,
        stroke="transparent",
    )
    axes = [
        Axis(scale=scales["row"], orientation="vertical", grid_lines="none"),
        Axis(
            scale=scales["column"],
            grid_lines="none",
            tick_rotate=-60,
            tick_style={"text-anchor": "end"},
        ),
        ColorAxis(
            scale=scales["color"],
            orientation="vertical",
            side="right",
            tick_format=".2f",
            num_ticks=5,
        ),
    ]
    margin = {"top": 60, "bottom": 80, "left": 80, "right": 80}
    return Figure(
        marks=[cells],
        axes=axes,
        title=title,
        padding_y=0.0,
        fig_margin=margin,
        max_aspect_ratio=1.4,
    )


def matrix_for_papers(values: pd.DataFrame, title: str) -> PaperFigure:
    """Draw an agreement matrix with matplotlib, with its numbers × 100 in it.

    Raises
    ------
    ProsectError
        If matplotlib is not installed.
    """
    colors = needs("matplotlib.colors")
    size = max(3.0, 0.38 * len(values) + 1.6)
    figure = paper_figure(size + 0.9, size)
    place = figure.subplots()
    ramp = colors.LinearSegmentedColormap.from_list("agreement", RAMP)
    numbers = values.to_numpy()
    drawn = place.imshow(numbers, cmap=ramp, vmin=_lowest(values), vmax=1)
    for (row, column), value in np.ndenumerate(numbers):
        dark = value > 1 - 0.3 * (1 - _lowest(values))
        place.text(
            *(column, row, f"{100 * value:.0f}"),
            ha="center",
            va="center",
            fontsize="x-small",
            color="#ffffff" if dark else "#222222",
        )
    place.set_xticks(range(len(numbers)), list(values.columns), **SLANTED)
    place.set_yticks(range(len(numbers)), list(values.index))
    place.set_title(title, fontsize="small")
    figure.colorbar(drawn, ax=place, shrink=0.8)
    return figure


def _lowest(values: pd.DataFrame) -> float:
    """Where the colours begin: the least value, rounded down to a tenth."""
    return min(0.9, np.floor(10 * values.to_numpy().min()) / 10)

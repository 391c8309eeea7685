"""Draw scores by subset of the terms and agreement matrices, with bqplot and with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from bqplot import (
    Axis,
    ColorAxis,
    ColorScale,
    GridHeatMap,
    LinearScale,
    Lines,
    OrdinalScale,
    Scatter,
)
from bqplot.figure import Figure

from prosect.figures.by_layer import OTHER_COLOURS
from prosect.figures.papers import paper_figure
from prosect.figures.titles import extra_height, shortened, wrapped
from prosect.optional import needs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as PaperFigure

RAMP = ("#f2f6fa", "#9dbbd8", "#1f4e79")
"""The colour scale, from low agreement to full agreement."""
LINE_STYLES = ("dashed", "dotted", "dashdot") * 2
"""The line styles of levels, in order."""
SLANTED_LABELS = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}


@dataclass(frozen=True)
class Points:
    """A score by subset.

    Attributes
    ----------
    name
        The name in the legend.
    labels
        The labels of the subsets.
    value
        [subset], the score.
    error
        [subset], the half-length of the error bar; NaN for no bar.
    """

    name: str
    labels: Sequence[str]
    value: np.ndarray
    error: np.ndarray

    @property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """[subset], the ends of the error bars, clipped to [0, 1] as scores are shares."""
        error = np.nan_to_num(self.error)
        return np.maximum(self.value - error, 0), np.minimum(self.value + error, 1)


@dataclass(frozen=True)
class Level:
    """A score that does not depend on the subset, such as a baseline; its error is 0 by default."""

    name: str
    value: float
    error: float = 0.0


def by_subset(points: Sequence[Points], levels: Sequence[Level], axis: str, title: str) -> Figure:
    """Draw scores by subset as points with error bars, and levels as lines, with bqplot."""
    labels = list(points[0].labels)
    scales = {"x": OrdinalScale(domain=labels), "y": LinearScale()}
    marks = []
    for score, colour in zip(points, OTHER_COLOURS, strict=False):
        low, high = score.ends
        marks += [
            Lines(
                x=[[label, label] for label in labels],
                y=np.stack([low, high], 1),
                scales=scales,
                colors=[colour],
                stroke_width=1.5,
            ),
            Scatter(
                x=labels,
                y=score.value,
                scales=scales,
                colors=[colour],
                default_size=36,
                labels=[score.name],
                display_legend=True,
            ),
        ]
    for level, colour, style in zip(levels, OTHER_COLOURS[::-1], LINE_STYLES, strict=False):
        marks.append(
            Lines(
                x=labels,
                y=np.full(len(labels), level.value),
                scales=scales,
                colors=[colour],
                line_style=style,
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
        marks=marks,
        axes=axes,
        title=shortened(title),
        legend_location="bottom-right",
        fig_margin=margin,
    )


def by_subset_for_papers(
    panels: Mapping[str, tuple[Sequence[Points], Sequence[Level]]], axis: str
) -> PaperFigure:
    """Draw scores by subset and levels with matplotlib, one panel for each entry.

    Raises
    ------
    ProsectError
        If matplotlib is not installed.
    """
    titles = [wrapped(title) for title in panels]
    figure = paper_figure(max(6.0, 4.6 * len(panels)), 4.2 + extra_height(titles))
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, title, (points, levels) in zip(row, titles, panels.values(), strict=True):
        for i, (score, colour) in enumerate(zip(points, OTHER_COLOURS, strict=False)):
            x = np.arange(len(score.labels)) + 0.3 * ((i + 0.5) / len(points) - 0.5)
            low, high = score.ends
            bars = (score.value - low, high - score.value)
            axes.errorbar(x, score.value, bars, fmt="o", ms=4, color=colour, label=score.name)
        for level, colour, style in zip(levels, OTHER_COLOURS[::-1], LINE_STYLES, strict=False):
            axes.axhline(level.value, color=colour, ls=style, linewidth=1.2, label=level.name)
            low, high = level.value - level.error, level.value + level.error
            axes.axhspan(low, high, color=colour, alpha=0.12, linewidth=0)
        axes.set_title(title, fontsize="medium")
        axes.set_xticks(range(len(points[0].labels)), points[0].labels, **SLANTED_LABELS)
        axes.set_xlabel("terms")
        axes.spines[["top", "right"]].set_visible(False)
    row[0].set_ylabel(axis)
    handles, labels = row[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(panels), frameon=False)
    return figure


def matrix(values: pd.DataFrame, title: str) -> Figure:
    """Draw an agreement matrix with bqplot, with the first subset at the top left."""
    scales = {
        "row": OrdinalScale(reverse=True),
        "column": OrdinalScale(),
        "color": ColorScale(colors=list(RAMP), min=_scale_minimum(values), max=1.0),
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
        title=shortened(title),
        padding_y=0.0,
        fig_margin=margin,
        max_aspect_ratio=1.4,
    )


def matrix_for_papers(values: pd.DataFrame, title: str) -> PaperFigure:
    """Draw an agreement matrix with matplotlib, with the values × 100 as text.

    Raises
    ------
    ProsectError
        If matplotlib is not installed.
    """
    colors = needs("matplotlib.colors")
    size = max(3.0, 0.38 * len(values) + 1.6)
    title = wrapped(title, round(8 * size))
    figure = paper_figure(size + 0.9, size + extra_height([title]))
    axes = figure.subplots()
    ramp = colors.LinearSegmentedColormap.from_list("agreement", RAMP)
    numbers = values.to_numpy()
    image = axes.imshow(numbers, cmap=ramp, vmin=_scale_minimum(values), vmax=1)
    for (row, column), value in np.ndenumerate(numbers):
        dark = value > 1 - 0.3 * (1 - _scale_minimum(values))
        axes.text(
            *(column, row, f"{100 * value:.0f}"),
            ha="center",
            va="center",
            fontsize="x-small",
            color="#ffffff" if dark else "#222222",
        )
    axes.set_xticks(range(len(numbers)), list(values.columns), **SLANTED_LABELS)
    axes.set_yticks(range(len(numbers)), list(values.index))
    axes.set_title(title, fontsize="small")
    figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def _scale_minimum(values: pd.DataFrame) -> float:
    """The lower end of the colour scale: the minimum, rounded down to a tenth, at most 0.9."""
    return min(0.9, np.floor(10 * values.to_numpy().min()) / 10)

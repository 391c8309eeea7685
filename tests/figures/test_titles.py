"""Titles of figures with long names: whole where lines can be broken, else beginning and end."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from prosect.figures.by_layer import Line, by_layer, by_layer_for_papers
from prosect.figures.by_subset import Level, Points, by_subset, by_subset_for_papers
from prosect.figures.titles import NOTEBOOK_WIDTH

LONG = "an-organisation-with-a-long-name/bert-base-multilingual-cased-tuned-for-names-in-english"
OTHER = "another-organisation/some-roberta-large-tuned-for-named-entities-version-2"
PAIRS = (f"{LONG} → {OTHER}", f"{LONG} → third", f"{OTHER} → third")
VALUES = np.array([0.2, 0.7, 0.4])


@pytest.mark.parametrize("names", [PAIRS[:1], (LONG, OTHER), PAIRS])
@pytest.mark.parametrize("by", ["layer", "subset"])
def test_long_titles_are_whole_and_do_not_meet(names: tuple[str, ...], by: str) -> None:
    if by == "layer":
        lines = [Line("input", VALUES, VALUES / 9)]
        figure = by_layer_for_papers(
            dict.fromkeys(names, lines), "importance, mean over all tokens"
        )
    else:
        points = [Points("accuracy", ["i", "h", "all"], VALUES, VALUES / 9)]
        panels = dict.fromkeys(names, (points, [Level("chance", 0.5)]))
        figure = by_subset_for_papers(panels, "accuracy")
    figure.draw_without_rendering()
    boxes = [axes.title.get_window_extent() for axes in figure.axes]
    assert ["".join(a.get_title().split()) for a in figure.axes] == [
        "".join(name.split()) for name in names
    ]
    label = figure.axes[0].yaxis.label.get_window_extent()
    for box in (*boxes, label):
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert 0 <= box.y0 < box.y1 <= figure.bbox.y1
    for left, right in pairwise(boxes):
        assert left.x1 < right.x0


def test_titles_in_notebooks_show_both_ends() -> None:
    points = [Points("accuracy", ["i", "h", "all"], VALUES, VALUES / 9)]
    plots = [by_layer([Line("input", VALUES)], "importance", PAIRS[0])]
    plots.append(by_subset(points, [], "accuracy", PAIRS[0]))
    for plot in plots:
        assert len(plot.title) <= NOTEBOOK_WIDTH
        beginning, end = plot.title.split("…")
        assert PAIRS[0].startswith(beginning)
        assert PAIRS[0].endswith(end)
    assert by_layer([Line("input", VALUES)], "importance", "bert").title == "bert"

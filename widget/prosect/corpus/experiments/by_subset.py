"""What the results by subset of terms have in common: their figures and agreement matrices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from prosect.corpus.experiments.result import Result
from prosect.errors import ProsectError
from prosect.figures.by_subset import (
    Level,
    Points,
    by_subset,
    by_subset_for_papers,
    matrix,
    matrix_for_papers,
)
from prosect.optional import needs

if TYPE_CHECKING:
    import pandas as pd
    from bqplot.figure import Figure as BqplotFigure
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class BySubset(Result):
    """Figures by subset of the terms.

    Attributes
    ----------
    subsets
        By model, the labels of its subsets of terms.
    """

    subsets: dict[str, list[str]]

    _axis: ClassVar[str]

    @abstractmethod
    def agreement(self, model: str | None = None) -> pd.DataFrame:
        """How much the predictions from each two subsets agree."""

    def plot(self, model: str | None = None) -> BqplotFigure:
        """The scores by subset of one model, the first by default (bqplot)."""
        name = self._named(model)
        return by_subset(self._points(name), self._levels(name), self._axis, self._title(name))

    def figure(self) -> Figure:
        """The scores by subset, a panel a model, with bars for their spread (matplotlib)."""
        panels = {
            self._title(model): (self._points(model), self._levels(model)) for model in self.subsets
        }
        return by_subset_for_papers(panels, self._axis)

    def plot_agreement(self, model: str | None = None) -> BqplotFigure:
        """The agreement between subsets as a heat map (bqplot)."""
        return matrix(self.agreement(model), self._sides(model))

    def figure_agreement(self, model: str | None = None) -> Figure:
        """The agreement between subsets as a heat map (matplotlib)."""
        return matrix_for_papers(self.agreement(model), self._sides(model))

    def _title(self, model: str) -> str:
        return model

    @abstractmethod
    def _points(self, model: str) -> list[Points]: ...

    @abstractmethod
    def _levels(self, model: str) -> list[Level]: ...

    @abstractmethod
    def _sides(self, model: str | None) -> str: ...

    def _named(self, model: str | None) -> str:
        """The model of that name, the first by default."""
        name = next(iter(self.subsets)) if model is None else model
        if name not in self.subsets:
            raise ProsectError(
                f"There is no model {name!r}: choose one of {', '.join(self.subsets)}."
            )
        return name


def spread(runs: np.ndarray) -> np.ndarray:
    """The standard deviation over seeds of scores [seed, ...]; NaN for a single seed."""
    return runs.std(0, ddof=1) if len(runs) > 1 else np.full(runs.shape[1:], np.nan)


def triangles(upper: np.ndarray, lower: np.ndarray, labels: Sequence[str]) -> pd.DataFrame:
    """The upper triangle of one matrix over the lower of another, with the diagonal of that."""
    values = np.triu(upper, 1) + np.tril(lower)
    return needs("pandas").DataFrame(values, index=list(labels), columns=list(labels))


def beside_the_paper(
    subsets: Mapping[str, Sequence[str]],
    runs: Mapping[str, np.ndarray],
    reported: Mapping[str, Mapping[str, float]],
) -> pd.DataFrame:
    """Mean and spread over seeds of each model beside what the paper reports, by subset.

    Parameters
    ----------
    subsets
        By model, the labels.
    runs
        By model, scores [seed, subset].
    reported
        By the name of a column, scores × 100 by the paper's names of subsets. Only subsets that the
        paper has there are rows.

    Raises
    ------
    ProsectError
        If it has none of them.
    """
    pandas = needs("pandas")
    columns = {}
    for model, labels in subsets.items():
        columns[model, "mean"] = pandas.Series(runs[model].mean(0), labels)
        columns[model, "spread"] = pandas.Series(spread(runs[model]), labels)
    table = pandas.DataFrame(columns)
    table = table.loc[list(dict.fromkeys(label for labels in subsets.values() for label in labels))]
    for name, scores in reported.items():
        table[name, "mean"] = [
            scores.get(_ALL if label == "all" else label, np.nan) / 100 for label in table.index
        ]
    table = table[table[list(reported)].notna().any(axis=1)]
    if table.empty:
        known = ", ".join(dict.fromkeys(label for scores in reported.values() for label in scores))
        raise ProsectError(f"The paper reports none of these subsets here, only {known}.")
    return table.dropna(axis=1, how="all")


_ALL = "i+h+f+c"
"""What the tables of the paper call all terms."""

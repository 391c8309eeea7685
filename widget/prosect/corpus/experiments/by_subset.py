"""The common part of results by subset of the terms: figures and agreement matrices."""

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
from prosect.validation import check_known

if TYPE_CHECKING:
    import pandas as pd
    from bqplot.figure import Figure as BqplotFigure
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class BySubset(Result):
    """Scores by subset of the terms.

    Attributes
    ----------
    subsets
        By model, the labels of its subsets of terms.
    """

    subsets: dict[str, list[str]]

    _axis: ClassVar[str]

    @abstractmethod
    def agreement(self, model: str | None = None) -> pd.DataFrame:
        """The agreement of the predictions from each pair of subsets."""

    def plot(self, model: str | None = None) -> BqplotFigure:
        """Draw the scores by subset of one model, the first by default (bqplot)."""
        name = self._model_name(model)
        return by_subset(self._points(name), self._levels(name), self._axis, self._title(name))

    def figure(self) -> Figure:
        """Draw the scores by subset with error bars, one panel per model (matplotlib)."""
        panels = {
            self._title(model): (self._points(model), self._levels(model)) for model in self.subsets
        }
        return by_subset_for_papers(panels, self._axis)

    def plot_agreement(self, model: str | None = None) -> BqplotFigure:
        """Draw the agreement of subsets as a heat map (bqplot)."""
        return matrix(self.agreement(model), self._agreement_title(model))

    def figure_agreement(self, model: str | None = None) -> Figure:
        """Draw the agreement of subsets as a heat map (matplotlib)."""
        return matrix_for_papers(self.agreement(model), self._agreement_title(model))

    def _title(self, model: str) -> str:
        return model

    @abstractmethod
    def _points(self, model: str) -> list[Points]: ...

    @abstractmethod
    def _levels(self, model: str) -> list[Level]: ...

    @abstractmethod
    def _agreement_title(self, model: str | None) -> str: ...

    def _model_name(self, model: str | None) -> str:
        """Return a known model name, the first by default."""
        name = next(iter(self.subsets)) if model is None else model
        check_known(name, list(self.subsets), "model")
        return name


def spread(runs: np.ndarray) -> np.ndarray:
    """The standard deviation over seeds of scores [seed, ...]; NaN for a single seed."""
    return runs.std(0, ddof=1) if len(runs) > 1 else np.full(runs.shape[1:], np.nan)


def triangles(upper: np.ndarray, lower: np.ndarray, labels: Sequence[str]) -> pd.DataFrame:
    """A table of the upper triangle of one matrix and the lower triangle and diagonal of another."""
    values = np.triu(upper, 1) + np.tril(lower)
    return needs("pandas").DataFrame(values, index=list(labels), columns=list(labels))


def beside_the_paper(
    subsets: Mapping[str, Sequence[str]],
    runs: Mapping[str, np.ndarray],
    reported: Mapping[str, Mapping[str, float]],
) -> pd.DataFrame:
    """A table of each model's mean and spread over seeds beside the paper's scores, by subset.

    Parameters
    ----------
    subsets
        By model, the labels of the subsets.
    runs
        By model, scores [seed, subset].
    reported
        By column name, the paper's scores × 100 by its labels of subsets. Subsets that the paper
        does not report are left out.

    Raises
    ------
    ProsectError
        If the paper reports none of the subsets.
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
            scores.get(_ALL_TERMS if label == "all" else label, np.nan) / 100
            for label in table.index
        ]
    table = table[table[list(reported)].notna().any(axis=1)]
    if table.empty:
        known = ", ".join(dict.fromkeys(label for scores in reported.values() for label in scores))
        raise ProsectError(f"The paper reports scores of the subsets {known} only.")
    return table.dropna(axis=1, how="all")


_ALL_TERMS = "i+h+f+c"
"""The paper's label of the sum of all terms."""

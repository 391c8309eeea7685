"""Scores of predictions, their standard error, and the agreement of two sets of predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int

from prosect.corpus.statistics.moments import ClusteredMean
from prosect.errors import ProsectError
from prosect.validation import listed, whole_number

AgreementScore = Callable[[np.ndarray, np.ndarray], float]
"""A symmetric score of two sets of predictions for the same examples."""


def micro_f1(first: Int[np.ndarray, "example"], second: Int[np.ndarray, "example"]) -> float:
    """Micro-F1: the share of equal predictions, as each example has one class."""
    return float((first == second).mean())


def macro_f1(first: Int[np.ndarray, "example"], second: Int[np.ndarray, "example"]) -> float:
    """The mean F1 over the classes that occur in either set of predictions; symmetric."""
    size = int(max(first.max(), second.max())) + 1
    totals = np.bincount(first, minlength=size) + np.bincount(second, minlength=size)
    hits = np.bincount(first[first == second], minlength=size)
    occurs = totals > 0
    return float((2 * hits[occurs] / totals[occurs]).mean())


def agreement(
    predictions: Int[np.ndarray, "seed subset example"], score: AgreementScore
) -> Float[np.ndarray, "subset subset"]:
    """Score the predictions of each subset against those of each other subset.

    The score is the mean over all pairs of different seeds, which removes what two trainings share
    through a common seed. The diagonal holds the agreement between trainings of one subset. With a
    single seed, its predictions are compared and the diagonal is 1.
    """
    seeds, subsets, _ = predictions.shape
    pairs = [(s, t) for s in range(seeds) for t in range(seeds) if s != t] or [(0, 0)]
    matrix = np.empty((subsets, subsets))
    for a in range(subsets):
        for b in range(a, subsets):
            value = np.mean([score(predictions[s, a], predictions[t, b]) for s, t in pairs])
            matrix[a, b] = matrix[b, a] = value
    return matrix


def standard_error(
    correct: Float[np.ndarray, "subset example"], texts: Sequence[int]
) -> Float[np.ndarray, "subset"]:
    """The standard error of accuracies, with the texts of the examples as independent draws."""
    distinct, text_index = np.unique(np.asarray(texts), return_inverse=True)
    totals = np.zeros((len(distinct), len(correct)))
    np.add.at(totals, text_index, correct.T)
    return ClusteredMean.of(totals, np.bincount(text_index)).error


def seed_numbers(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Return the seeds 0, 1, … for a number of seeds, or the given seeds.

    Raises
    ------
    ProsectError
        If there is no seed, a seed is repeated, or one is not an integer.
    """
    if isinstance(seeds, Iterable):
        numbers = listed(seeds, "seeds")
    else:
        numbers = list(range(whole_number(seeds, "seeds")))
    if not numbers or len(set(numbers)) < len(numbers):
        raise ProsectError(
            f"seeds must be a count of at least 1 or a list of distinct integers, got {seeds!r}."
        )
    return tuple(numbers)

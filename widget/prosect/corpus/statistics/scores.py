"""How good predictions are, how much two sets of them agree, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int

from prosect.corpus.statistics.moments import Clustered
from prosect.errors import ProsectError
from prosect.validation import listed, whole_number

Score = Callable[[np.ndarray, np.ndarray], float]


def micro_f1(first: Int[np.ndarray, "example"], second: Int[np.ndarray, "example"]) -> float:
    """Micro-F1, which is the share of equal ones where each example has one class."""
    return float((first == second).mean())


def macro_f1(first: Int[np.ndarray, "example"], second: Int[np.ndarray, "example"]) -> float:
    """The mean F1 of the classes that occur in either; symmetric."""
    size = int(max(first.max(), second.max())) + 1
    both = np.bincount(first, minlength=size) + np.bincount(second, minlength=size)
    hits = np.bincount(first[first == second], minlength=size)
    there = both > 0
    return float((2 * hits[there] / both[there]).mean())


def agreement(
    found: Int[np.ndarray, "seed subset example"], score: Score
) -> Float[np.ndarray, "subset subset"]:
    """How well the predictions of one subset agree with those of another.

    The mean over all pairs of different seeds, so that what two trainings share by their seed does
    not count; on the diagonal, how well trainings of one subset agree among themselves. With one
    seed: of its predictions, and 1 on the diagonal.
    """
    seeds, subsets, _ = found.shape
    pairs = [(s, t) for s in range(seeds) for t in range(seeds) if s != t] or [(0, 0)]
    matrix = np.empty((subsets, subsets))
    for a in range(subsets):
        for b in range(a, subsets):
            value = np.mean([score(found[s, a], found[t, b]) for s, t in pairs])
            matrix[a, b] = matrix[b, a] = value
    return matrix


def standard_error(
    right: Float[np.ndarray, "subset example"], texts: Sequence[int]
) -> Float[np.ndarray, "subset"]:
    """The standard error of accuracies, with the texts that examples are of as independent draws."""
    numbers, which = np.unique(np.asarray(texts), return_inverse=True)
    totals = np.zeros((len(numbers), len(right)))
    np.add.at(totals, which, right.T)
    return Clustered.of(totals, np.bincount(which)).error


def numbered(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """So many seeds from 0, or the seeds themselves.

    Raises
    ------
    ProsectError
        If there is none, one is there twice, or one is no whole number.
    """
    if isinstance(seeds, Iterable):
        found = listed(seeds, "seed")
    else:
        found = list(range(whole_number(seeds, "number of seeds")))
    if not found or len(set(found)) < len(found):
        raise ProsectError(
            f"seeds are how many, or different numbers, at least one, not {seeds!r}."
        )
    return tuple(found)

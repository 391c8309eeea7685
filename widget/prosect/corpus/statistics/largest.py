"""The largest values of rows, selected so that parts of a row can be merged."""

from __future__ import annotations

import numpy as np


def largest_indices(values: np.ndarray, k: int) -> np.ndarray:
    """[row, k], the indices of the k largest values of each row, largest first.

    Equal values keep their order. The k largest of the concatenated k largest of several parts are
    the k largest of the whole row.
    """
    return np.stack([_largest_indices(row, min(k, values.shape[1])) for row in values])


def _largest_indices(row: np.ndarray, k: int) -> np.ndarray:
    if k == 0:
        return np.zeros(0, np.intp)
    threshold = np.partition(row, len(row) - k)[len(row) - k]
    candidates = np.flatnonzero(row >= threshold)  # more than k where values are equal
    return candidates[np.argsort(-row[candidates], kind="stable")[:k]]


def keep_largest_of_each_key(values: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Replace all values [row, n] by −1 but the largest of each key in a row, the first if equal."""
    kept = np.full_like(values, -1)
    for kept_row, row, key in zip(kept, values, keys, strict=True):
        order = np.argsort(-row, kind="stable")
        first = order[np.unique(key[order], return_index=True)[1]]
        kept_row[first] = row[first]
    return kept

from __future__ import annotations

import numpy as np
import pytest

from prosect.corpus.statistics.largest import keep_largest_of_each_key, largest_indices

GENERATOR = np.random.default_rng(0)


@pytest.mark.parametrize("cuts", [[], [3], [10, 20, 21]])
def test_the_largest_of_parts_are_the_largest_of_all(cuts: list[int]) -> None:
    values = GENERATOR.integers(0, 12, (4, 30)).astype(float)  # many are equal
    expected = np.argsort(-values, 1, kind="stable")[:, :6]
    np.testing.assert_array_equal(largest_indices(values, 6), expected)
    places = np.tile(np.arange(30), (4, 1))
    left = []
    for part, place in zip(np.split(values, cuts, 1), np.split(places, cuts, 1), strict=True):
        best = largest_indices(part, 6)
        left.append([np.take_along_axis(x, best, 1) for x in (part, place)])
    sizes, found = (np.concatenate(side, 1) for side in zip(*left, strict=True))
    best = np.take_along_axis(found, largest_indices(sizes, 6), 1)
    np.testing.assert_array_equal(best, expected)


def test_there_may_be_fewer_than_k() -> None:
    np.testing.assert_array_equal(largest_indices(np.array([[1.0, 3.0]]), 5), [[1, 0]])
    assert largest_indices(np.zeros((2, 0)), 5).shape == (2, 0)


def test_each_key_is_left_once_where_it_is_largest() -> None:
    sizes = np.array([[5.0, 7.0, 7.0, 2.0], [1.0, 2.0, 3.0, 4.0]])
    keys = np.array([[1, 1, 1, 2], [3, 4, 3, 4]])
    np.testing.assert_array_equal(
        keep_largest_of_each_key(sizes, keys), [[-1, 7, -1, 2], [-1, -1, 3, 4]]
    )

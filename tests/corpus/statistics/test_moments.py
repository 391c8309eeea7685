from __future__ import annotations

import numpy as np
import pytest

from prosect.corpus.statistics.moments import ClusteredMean, CrossProducts, Moments

VALUES = np.random.default_rng(0).normal(3.0, 2.0, (41, 2, 3))


@pytest.mark.parametrize("cuts", [[], [1], [20], [5, 6, 40]])
def test_moments_are_those_of_all_values_however_they_are_cut(cuts: list[int]) -> None:
    first, *others = (Moments.of(part) for part in np.split(VALUES, cuts))
    for other in others:
        first = first.merge(other)
    assert first.count == len(VALUES)
    np.testing.assert_allclose(first.mean, VALUES.mean(0), rtol=1e-13)
    np.testing.assert_allclose(first.spread, VALUES.std(0, ddof=1), rtol=1e-13)


def test_a_stretch_without_values_changes_nothing() -> None:
    some, none = Moments.of(VALUES), Moments.of(VALUES[:0])
    for both in (some.merge(none), none.merge(some)):
        np.testing.assert_array_equal(both.mean, some.mean)
        np.testing.assert_array_equal(both.squares, some.squares)
    assert none.merge(none).count == 0


@pytest.mark.parametrize("cuts", [[], [3], [1, 2, 9]])
def test_the_error_of_a_ratio_is_that_of_the_formula(cuts: list[int]) -> None:
    generator = np.random.default_rng(1)
    counts = generator.integers(1, 30, 12)
    totals = generator.normal(0.4, 0.1, (12, 3)) * counts[:, None]
    parts = zip(np.split(totals, cuts), np.split(counts, cuts), strict=True)
    first, *others = (ClusteredMean.of(*part) for part in parts)
    for other in others:
        first = first.merge(other)
    ratio = totals.sum(0) / counts.sum()
    left = np.square(totals - ratio * counts[:, None]).sum(0)
    np.testing.assert_allclose(first.mean, ratio, rtol=1e-13)
    np.testing.assert_allclose(first.error, np.sqrt(12 / 11 * left) / counts.sum(), rtol=1e-11)


def test_the_error_covers_the_mean_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(2)
    covered = []
    for _ in range(400):
        counts = generator.integers(1, 20, 60)
        # the tokens of a text share what their text adds
        totals = counts * (1.0 + generator.normal(0, 1, 60)) + generator.normal(0, counts**0.5)
        found = ClusteredMean.of(totals, counts)
        covered.append(abs(found.mean - 1.0) < 1.96 * found.error)
    assert 0.90 < np.mean(covered) < 0.98


def test_one_text_has_no_standard_error() -> None:
    assert np.isnan(ClusteredMean.of(np.array([[3.0]]), np.array([4])).error).all()


# --- cross-products ------------------------------------------------------------------------------

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(3.0, 2.0, (2, 41, 5))
Y = X @ GENERATOR.normal(size=(5, 3)) + GENERATOR.normal(100.0, 1.0, (2, 41, 3))


@pytest.mark.parametrize("cuts", [[], [1], [20], [5, 6, 40], [0, 20, 20]])
def test_cross_products_are_those_of_all_pairs_however_they_are_cut(cuts: list[int]) -> None:
    parts = zip(np.split(X, cuts, 1), np.split(Y, cuts, 1), strict=True)
    first, *others = (CrossProducts.of(x, y) for x, y in parts)
    for other in others:
        first = first.merge(other)
    dx, dy = X - X.mean(1, keepdims=True), Y - Y.mean(1, keepdims=True)
    assert first.count == 41
    np.testing.assert_allclose(first.mean_x, X.mean(1), rtol=1e-13)
    np.testing.assert_allclose(first.mean_y, Y.mean(1), rtol=1e-13)
    np.testing.assert_allclose(first.xx, np.einsum("lnp,lnq->lpq", dx, dx), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(first.xy, np.einsum("lnp,lnq->lpq", dx, dy), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(first.yy, np.square(dy).sum(1), rtol=1e-11)


def test_no_pairs_change_nothing() -> None:
    some, none = CrossProducts.of(X, Y), CrossProducts.of(X[:, :0], Y[:, :0])
    for both in (some.merge(none), none.merge(some)):
        for name in ("mean_x", "mean_y", "xx", "xy", "yy"):
            np.testing.assert_array_equal(getattr(both, name), getattr(some, name))
    assert none.merge(none).count == 0


def test_cross_products_come_back_from_arrays() -> None:
    some = CrossProducts.of(X, Y)
    again = CrossProducts.unpack(some.pack("all"), "all")
    assert again.count == some.count
    np.testing.assert_array_equal(again.xy, some.xy)


def test_fewer_than_two_vectors_have_no_spread() -> None:
    for count in (0, 1):
        assert np.isnan(Moments.of(X[0, :count]).spread).all()

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from prosect.corpus.statistics.moments import CrossProducts
from prosect.corpus.statistics.regression import LinearMap

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(2.0, 1.0, (200, 6)) * [1, 10, 1, 0.1, 1, 1]
Y = np.tanh(X @ GENERATOR.normal(size=(6, 4))) + GENERATOR.normal(size=(200, 4))


def fit(x: np.ndarray, y: np.ndarray) -> LinearMap:
    return LinearMap.fit(CrossProducts.of(x[None], y[None]))


def test_the_map_is_that_of_scikit_learn_on_any_pairs() -> None:
    found, model = fit(X[:150], Y[:150]), LinearRegression().fit(X[:150], Y[:150])
    np.testing.assert_allclose(found(X[None])[0], model.predict(X), atol=1e-11)
    for part in (slice(150), slice(150, None)):
        expected = r2_score(Y[part], model.predict(X[part]), multioutput="raw_values")
        scored = found.r_squared(CrossProducts.of(X[None, part], Y[None, part]))
        np.testing.assert_allclose(scored[0], expected, atol=1e-11)
    assert found.rank.tolist() == [6]


@pytest.mark.parametrize("case", ["copies", "sum", "constant", "few"])
def test_dependent_inputs_predict_as_well_as_the_independent_ones(case: str) -> None:
    n = 5 if case == "few" else len(X)
    more = {
        "copies": 3 * X[:, :2] - 1,
        "sum": X.sum(1, keepdims=True),
        "constant": np.full((len(X), 1), 0.1) * [7.0, 0.0],
        "few": X[:, :0],
    }[case]
    x, y = np.column_stack([X, more])[:n], Y[:n]
    found = fit(x, y)
    assert found.rank.tolist() == [4 if case == "few" else 6]
    expected = LinearRegression().fit(X[:n], y).predict(X[:n])
    np.testing.assert_allclose(found(x[None])[0], expected, atol=1e-10)


def test_scales_and_large_means_do_not_matter() -> None:
    cross = CrossProducts.of(X[None], Y[None])
    expected = LinearMap.fit(cross).r_squared(cross)
    scale, shift = 10.0 ** np.arange(-3, 3), 10.0 ** np.arange(0, 6)
    other = CrossProducts.of((X * scale + shift * scale)[None], (1e2 + 1e-3 * Y)[None])
    np.testing.assert_allclose(LinearMap.fit(other).r_squared(other), expected, atol=1e-6)


def test_float32_rounding_is_no_direction() -> None:
    d = 64
    x = GENERATOR.normal(size=(3000, d)) @ GENERATOR.normal(size=(d, d))
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    gain, bias = GENERATOR.normal(1, 0.3, d), GENERATOR.normal(0, 2.0, d)
    x = (x * gain + bias).astype(np.float32)
    assert fit(x, x[:, :2]).rank.tolist() == [d - 1]


def test_outputs_that_do_not_vary_have_no_figure() -> None:
    y = np.column_stack([Y, np.full(len(Y), 0.3), np.zeros(len(Y)), 1e-9 * Y[:, 0]])
    cross = CrossProducts.of(X[None], y[None])
    found = LinearMap.fit(cross).r_squared(cross)[0]
    assert np.flatnonzero(np.isnan(found)).tolist() == [4, 5]
    assert found[6] == pytest.approx(found[0])


def test_nothing_comes_of_nothing() -> None:
    none, some = CrossProducts.of(X[None, :0], Y[None, :0]), CrossProducts.of(X[None], Y[None])
    assert LinearMap.fit(none).rank.tolist() == [0]
    assert np.isnan(LinearMap.fit(none).r_squared(some)).all()
    assert np.isnan(LinearMap.fit(some).r_squared(none)).all()

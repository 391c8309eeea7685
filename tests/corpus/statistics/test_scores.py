from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics

import prosect
from prosect.corpus.statistics.scores import (
    agreement,
    macro_f1,
    micro_f1,
    seed_numbers,
    standard_error,
)

FOUND = np.random.default_rng(0).integers(0, 4, (3, 5, 60))
FOUND[:, 1] = FOUND[:, 0]


def test_scores_are_those_of_scikit_learn() -> None:
    for first, second in ((FOUND[0, 0], FOUND[1, 2]), (FOUND[0, 0] % 2, FOUND[2, 3])):
        for ours, average in ((micro_f1, "micro"), (macro_f1, "macro")):
            theirs = sklearn.metrics.f1_score(first, second, average=average, zero_division=0)
            assert ours(first, second) == pytest.approx(theirs)
            assert ours(second, first) == pytest.approx(theirs)


def test_agreement_is_the_mean_over_pairs_of_different_seeds() -> None:
    matrix = agreement(FOUND, micro_f1)
    for a in range(5):
        for b in range(5):
            shares = [
                (FOUND[s, a] == FOUND[t, b]).mean() for s in range(3) for t in range(3) if s != t
            ]
            assert matrix[a, b] == pytest.approx(np.mean(shares))
    assert (matrix == matrix.T).all()


def test_agreement_of_one_run_is_one_with_itself() -> None:
    matrix = agreement(FOUND[:1], macro_f1)
    assert (np.diag(matrix) == 1).all()
    assert matrix[0, 1] == 1.0  # they say the same
    assert matrix[0, 2] == macro_f1(FOUND[0, 0], FOUND[0, 2]) < 1


def test_the_error_knows_that_examples_of_a_text_go_together() -> None:
    generator = np.random.default_rng(1)
    right = generator.random((2, 300)) < 0.7
    alone = standard_error(right, range(300))
    binomial = np.sqrt(right.mean(-1) * (1 - right.mean(-1)) / 299)
    np.testing.assert_allclose(alone, binomial, rtol=1e-10)
    # every text three times: no more is known, whatever the order
    order = generator.permutation(900)
    thrice = standard_error(np.tile(right, 3)[:, order], np.tile(np.arange(300), 3)[order])
    np.testing.assert_allclose(thrice, alone, rtol=1e-10)


def test_seeds_are_a_number_or_a_list() -> None:
    assert seed_numbers(3) == (0, 1, 2)
    assert seed_numbers([7, 5]) == (7, 5)
    assert seed_numbers(np.int64(2)) == seed_numbers(np.arange(2)) == (0, 1)
    assert all(type(seed) is int for seed in seed_numbers(np.arange(2)))
    for wrong, message in (
        (2.5, "seeds must be an integer, got 2.5"),
        (True, "seeds must be an integer, got True"),
        (None, "seeds must be an integer, got None"),
        ("12", "seeds must be a list of integers, got '12'"),
        ([0.2, 1.7], "Every element of seeds must be an integer, got 0.2"),
    ):
        with pytest.raises(prosect.ProsectError, match=message):
            seed_numbers(wrong)
    for wrong in (0, -1, [], [1, 1]):
        with pytest.raises(
            prosect.ProsectError, match="a count of at least 1 or a list of distinct integers"
        ):
            seed_numbers(wrong)

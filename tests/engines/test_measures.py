"""Measures of maps against their definitions, on maps made for the purpose."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from prosect.engines.measures import (
    contextualization_change,
    mixing_ratio,
    outlier_dimensions,
    pearson,
    spearman,
    top_pairs,
    undone,
)
from support import plain
from support.families import TEXTS, random_lens


@pytest.mark.parametrize("ties", [False, True])
def test_spearman_is_scipys(ties: bool) -> None:
    torch.manual_seed(0)
    a, b = torch.rand(2, 9, 9, dtype=torch.float64)
    b = b + a
    if ties:
        a, b = (4 * a).round(), (3 * b).round()
        a = a.tril()
    expected = stats.spearmanr(a.flatten(), b.flatten()).statistic
    assert float(spearman(a, b)) == pytest.approx(expected, abs=1e-12)
    assert contextualization_change(a, b) == pytest.approx(1 - expected, abs=1e-12)


def test_a_map_correlates_with_itself_and_a_constant_with_nothing_else() -> None:
    same, other = torch.full((2, 2), 0.5), torch.rand(2, 2)
    assert pearson(same.flatten(), same.flatten()) == float(spearman(same, same)) == 1
    assert contextualization_change(same, same) == 0
    assert torch.tensor(pearson(same.flatten(), other.flatten())).isnan()
    assert spearman(same, other).isnan()


def test_pearson_is_scipys() -> None:
    torch.manual_seed(0)
    a, b = torch.rand(2, 50)
    expected = stats.pearsonr(a.double().numpy(), b.double().numpy()).statistic
    assert pearson(a, b) == pytest.approx(expected, abs=1e-12)


def test_the_same_order_is_no_change_and_the_opposite_is_two() -> None:
    torch.manual_seed(0)
    a = torch.rand(6, 6, dtype=torch.float64)
    assert contextualization_change(a, a.exp()) == pytest.approx(0, abs=1e-12)
    assert contextualization_change(a, -a) == pytest.approx(2, abs=1e-12)


def test_the_mixing_ratio_sums_vectors_before_it_takes_their_length() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    for number in range(len(trace.anatomy.blocks)):
        w = plain.weights_of(trace.lens.model, number)
        parts_of = plain.scopes(w, trace.hidden[number], trace.attention[number])
        for kind, (parts, _) in parts_of.items():
            found = trace.map(kind).mixing()[number]
            for i in range(len(trace.tokens)):
                own = parts[i, i].norm()
                others = sum(parts[j, i] for j in range(len(parts)) if j != i).norm()
                assert float(found[i]) == pytest.approx(float(others / (others + own)), abs=1e-9)


def test_only_itself_is_no_mixing_and_only_others_is_all_of_it() -> None:
    assert mixing_ratio(torch.tensor([2.0, 0.0, 1.0]), torch.tensor([0.0, 3.0, 1.0])).tolist() == [
        0.0,
        1.0,
        0.5,
    ]
    assert mixing_ratio(torch.zeros(1), torch.zeros(1)).tolist() == [0.0]


def test_the_top_pairs_are_the_largest_changes_in_order() -> None:
    change = torch.tensor([[0.0, 5.0, -7.0], [2.0, 9.0, 1.0]])
    places, amounts = top_pairs(change, 3)
    assert places.tolist() == [[1, 1], [0, 1], [1, 0]]
    assert amounts.tolist() == [9.0, 5.0, 2.0]
    assert len(top_pairs(change, 100)[1]) == 6


def test_undone_is_the_share_of_a_change_that_is_taken_back() -> None:
    torch.manual_seed(0)
    before, after = torch.rand(2, 5, 5, dtype=torch.float64)
    before, after = (m / m.sum(-1, keepdim=True) for m in (before, after))
    half = (before + after) / 2
    onward = after + (after - before)
    assert undone(before, after, before) == pytest.approx(1)
    assert undone(before, after, after) == pytest.approx(0)
    assert undone(before, after, half) == pytest.approx(0.5)
    assert undone(before, after, onward) == pytest.approx(-1)
    # the scale of a row is not a change
    scale = torch.rand(5, 1, dtype=torch.float64) + 1
    assert undone(before * scale, after * 3, before * 7) == pytest.approx(1)
    # where nothing changed, or nothing is there, nothing is taken back
    assert undone(before, before, after) == undone(*torch.zeros(3, 5, 5)) == 0


def test_a_change_at_a_right_angle_takes_nothing_back() -> None:
    even = torch.full((1, 4), 0.25, dtype=torch.float64)
    change = torch.tensor([[0.1, -0.1, 0.0, 0.0]], dtype=torch.float64)
    across = torch.tensor([[0.0, 0.0, 0.1, -0.1]], dtype=torch.float64)
    assert undone(even, even + change, even + change + across) == pytest.approx(0)


def test_outliers_stand_out_by_three_standard_deviations() -> None:
    size = torch.rand(100)
    size[[17, 60]] = 20.0
    assert outlier_dimensions(size).tolist() == [17, 60]
    assert outlier_dimensions(torch.rand(100)).tolist() == []

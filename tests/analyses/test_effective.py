"""What of attention could be otherwise: other matrices with the same output, and correlations."""

from __future__ import annotations

from dataclasses import replace

import pytest
import scipy.stats
import torch
from torch import Tensor

import prosect
from prosect.analyses.effective import AttentionIdentifiability, NullSpace, random_baseline
from prosect.anatomy.vocabulary import looking_back
from prosect.errors import ProsectError
from support.families import TEXTS, WINDOWS, random_lens, within_window

LONG = " ".join(TEXTS[:2])
FAMILIES = ("bert", "gpt2", "llama", "qwen3")
CAUSAL = ("gpt2", "llama", "qwen3")


def traced(family: str) -> prosect.Trace:
    return random_lens(family).trace(LONG)


def windowed(family: str) -> prosect.Trace:
    """A text longer than the windows, which are wider than the heads."""
    return random_lens(family, **WINDOWS[family][0]).trace(LONG)


def head_of(trace: prosect.Trace, layer: int, head: int) -> tuple[Tensor, Tensor]:
    """A and T = V W_O of one head, as they are."""
    found = trace.run.stream.attentions[layer]
    heads = len(found.alpha)
    value = found.value[head // (heads // len(found.value))]
    return found.alpha[head], value @ found.output_map.weight(value).unflatten(0, (heads, -1))[head]


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_alternatives_are_distributions_with_the_same_output(family: str, share: float) -> None:
    trace = traced(family)
    for layer, head in ((0, 0), (2, 3)):
        a, t = head_of(trace, layer, head)
        found = trace.nullspace(layer, head).alternative(share)
        other = found.attention
        assert (other >= 0).all()
        torch.testing.assert_close(other.sum(-1), torch.ones(len(a), dtype=torch.float64))
        gap = (other @ t - a @ t).norm(dim=-1) / (a @ t).norm(dim=-1)
        assert float(gap.max()) <= 1e-10
        assert found.error <= 1e-10
        assert (other - a).abs().max() > 1e-4
        if family in CAUSAL:
            assert (other.triu(1) == 0).all()


@pytest.mark.parametrize("family", WINDOWS)
def test_alternatives_stay_within_the_window(family: str) -> None:
    trace = windowed(family)
    n = len(trace.tokens)
    for layer in range(len(trace.attention)):
        visible = within_window(family, layer, n)
        a, t = head_of(trace, layer, 1)
        found = trace.nullspace(layer, 1).alternative()
        other = found.attention
        assert (other >= 0).all()
        assert (other[~visible] == 0).all()
        torch.testing.assert_close(other.sum(-1), torch.ones(n, dtype=torch.float64))
        gap = (other @ t - a @ t).norm(dim=-1) / (a @ t).norm(dim=-1)
        assert float(gap.max()) <= 1e-10
        assert found.error <= 1e-10
        # what has freedom goes as far as to an edge
        with_ones = torch.cat([t, torch.ones(n, 1)], dim=1)
        free = [int(seen.sum()) > torch.linalg.matrix_rank(with_ones[seen]) for seen in visible]
        assert (found.furthest > 0).tolist() == free
        assert any(free)
        for row in range(n):
            assert float(other[row, visible[row]].min()) <= 1e-15 or not free[row]


@pytest.mark.parametrize("family", WINDOWS)
def test_in_a_window_the_null_space_is_that_of_the_last_row_that_sees_most(family: str) -> None:
    trace, free = windowed(family), windowed(family).attention_identifiability()
    n = len(trace.tokens)
    for layer in range(len(trace.attention)):
        visible, space = within_window(family, layer, n), trace.nullspace(layer, 2)
        _, t = head_of(trace, layer, 2)
        row = max(range(n), key=lambda row: (int(visible[row].sum()), row))
        seen = visible[row]
        assert space.row == row
        assert (space.visible is None) == bool(visible.all())
        own = t[seen]
        with_ones = torch.cat([own, torch.ones(len(own), 1)], dim=1)
        ranks = torch.linalg.matrix_rank(own), torch.linalg.matrix_rank(with_ones)
        assert int(free.seen[layer]) == len(own)
        assert space.rank == int(free.rank[layer, 2]) == int(ranks[0])
        assert int(free.dimension[layer, 2]) == len(own) - int(ranks[0])
        assert space.dimension == int(free.dimension_with_sums[layer, 2])
        assert space.dimension == len(own) - int(ranks[1])
        assert space.basis.shape == (n, space.dimension)
        assert (space.basis[~seen] == 0).all()
        assert (space.basis.T @ t).abs().max() <= 1e-12 * t.norm()
        assert space.basis.sum(0).abs().max() <= 1e-12
        eye = torch.eye(space.dimension, dtype=torch.float64)
        torch.testing.assert_close(space.basis.T @ space.basis, eye)
    assert free.tokens == n


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_every_row_that_can_move_goes_until_an_entry_is_zero(family: str) -> None:
    trace = traced(family)
    space = trace.nullspace(1, 2)
    a, _ = head_of(trace, 1, 2)
    full, half = space.alternative(1.0), space.alternative(0.5)
    assert torch.equal(full.furthest, half.furthest)
    for row, step in enumerate(full.furthest.tolist()):
        seen = row + 1 if family in CAUSAL else len(a)
        if step == 0:
            assert torch.equal(full.attention[row], a[row])
            continue
        assert float(full.attention[row, :seen].min()) <= 1e-15
        # half way no entry is zero yet, and the way is straight
        assert float(half.attention[row, :seen].min()) > 0
        middle = (full.attention[row] + a[row]) / 2
        torch.testing.assert_close(half.attention[row], middle, rtol=0, atol=1e-14)
    # d_head + 1 tokens are the most that leave no freedom
    assert (full.furthest > 0).sum() == (len(a) - 9 if family in CAUSAL else len(a))


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_no_step_leaves_attention_as_it_is(family: str) -> None:
    trace = traced(family)
    found = trace.nullspace(0, 1).alternative(0.0)
    assert torch.equal(found.attention, head_of(trace, 0, 1)[0])
    assert found.error == 0


def test_seeds_choose_directions() -> None:
    space = traced("bert").nullspace(0, 1)
    first, again, other = (space.alternative(seed=seed).attention for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert (first - other).abs().max() > 1e-3


def test_a_direction_is_followed_by_every_row() -> None:
    trace = traced("bert")
    space, (a, _) = trace.nullspace(0, 1), head_of(trace, 0, 1)
    direction = torch.zeros(space.dimension)
    direction[2] = -1.0
    found = space.alternative(0.5, direction=direction)
    moved = -0.5 * found.furthest[:, None] * space.basis[:, 2]
    torch.testing.assert_close(found.attention, a + moved, rtol=0, atol=1e-14)
    for other in (7 * direction, direction.tolist(), direction.numpy()):  # its length says nothing
        again = space.alternative(0.5, direction=other)
        torch.testing.assert_close(again.attention, found.attention)
        torch.testing.assert_close(again.furthest, found.furthest)


def test_a_null_space_is_that_of_the_options_asked_for() -> None:
    trace = traced("bert")
    for options in ({"value_bias": False}, {"tolerance": 0.3}):
        free, space = trace.attention_identifiability(**options), trace.nullspace(1, 2, **options)
        assert space.rank == int(free.rank[1, 2])
        assert space.dimension == int(free.dimension_with_sums[1, 2])
        assert space.rank < 8 or "tolerance" not in options


def test_no_direction_leads_nowhere() -> None:
    trace = traced("bert")
    space = trace.nullspace(0, 1)
    found = space.alternative(direction=torch.zeros(space.dimension))
    assert torch.equal(found.attention, head_of(trace, 0, 1)[0])
    assert (found.furthest == 0).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_basis_keeps_output_and_sums(family: str) -> None:
    trace = traced(family)
    space, (a, t) = trace.nullspace(2, 1), head_of(trace, 2, 1)
    eye = torch.eye(space.dimension, dtype=torch.float64)
    torch.testing.assert_close(space.basis.T @ space.basis, eye)
    assert (space.basis.T @ t).abs().max() <= 1e-12 * t.norm()
    assert space.basis.sum(0).abs().max() <= 1e-12
    free = trace.attention_identifiability()
    assert space.rank == int(free.rank[2, 1]) == torch.linalg.matrix_rank(t)
    assert space.dimension == int(free.dimension_with_sums[2, 1])
    with_ones = torch.cat([t, torch.ones(len(t), 1)], dim=1)
    assert space.dimension == len(a) - torch.linalg.matrix_rank(with_ones)
    assert int(free.dimension[2, 1]) == len(a) - space.rank
    assert not free.identifiable[2, 1]
    assert "dimension" in repr(space)


def test_short_texts_leave_no_alternative() -> None:
    trace = random_lens("bert").trace("The river")
    space = trace.nullspace(0, 0)
    assert space.dimension == 0
    found = space.alternative()
    assert torch.equal(found.attention, trace.attention[0, 0])
    assert (found.furthest == 0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_where_nothing_is_written_all_is_free(causal: bool) -> None:
    trace = traced("gpt2" if causal else "bert")
    found = trace.run.stream.attentions[0]
    silent = replace(found, value=torch.zeros_like(found.value))
    space = NullSpace.of(silent, 0, 0, 1e-13)
    assert (space.rank, space.dimension) == (0, len(trace.tokens) - 1)
    other = space.alternative()
    assert other.error == 0
    assert torch.isfinite(other.attention).all()


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("bert", {"t": 1.5}, "between 0 and 1"),
        ("bert", {"t": -0.1}, "between 0 and 1"),
        ("bert", {"t": "a"}, "t must be between 0 and 1, got 'a'"),
        ("bert", {"seed": "a"}, "seed must be an integer, got 'a'"),
        ("bert", {"direction": torch.ones(3)}, "must have .* numbers, one per dimension"),
        ("bert", {"direction": "abc"}, "direction must be a list of numbers, got .abc."),
        ("bert", {"direction": [torch.nan] * 17}, "NaN or infinite"),
        ("bert", {"direction": [torch.inf] * 17}, "NaN or infinite"),
        ("bert", {"direction": torch.ones(3), "seed": 2}, "cannot both be given"),
        ("gpt2", {"direction": torch.ones(3)}, "seed"),
        ("mistral", {"direction": torch.ones(3)}, "seed"),
    ],
)
def test_directions_that_do_not_fit_are_refused(family: str, options: dict, message: str) -> None:
    space = traced(family).nullspace(0, 0)
    with pytest.raises(ProsectError, match=message) as refusal:
        space.alternative(**options)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("tolerance", [-1e-3, 1.0, float("nan")])
def test_a_tolerance_is_a_share(tolerance: float) -> None:
    with pytest.raises(ProsectError, match="tolerance must be at least 0 and less than 1"):
        traced("bert").attention_identifiability(tolerance=tolerance)
    with pytest.raises(ProsectError, match="tolerance must be at least 0 and less than 1"):
        traced("bert").nullspace(0, 0, tolerance=tolerance)
    for wrong in ("no", 1, None):
        with pytest.raises(ProsectError, match="value_bias must be True or False"):
            traced("bert").attention_identifiability(value_bias=wrong)


def test_heads_are_whole_numbers() -> None:
    with pytest.raises(ProsectError, match=r"head must be an integer, got 0\.5"):
        traced("bert").nullspace(1, 0.5)
    for layer, head in ((0.0, 0), ("0", 0), (True, False)):
        with pytest.raises(ProsectError, match="layer must be an integer, got"):
            traced("bert").nullspace(layer, head)


@pytest.mark.parametrize(("layer", "head"), [(3, 0), (-1, 0), (0, 4), (0, -1)])
def test_heads_that_do_not_exist_are_refused(layer: int, head: int) -> None:
    with pytest.raises(ProsectError, match="layer must be from 0 to"):
        traced("bert").nullspace(layer, head)


def test_attention_identifiability_says_how_many_heads_are_identifiable() -> None:
    rank, dimension, with_sums = torch.tensor([[[8, 7]], [[0, 1]], [[0, 0]]])
    found = AttentionIdentifiability(8, rank, dimension, with_sums, torch.tensor([8]))
    assert found.identifiable.all()
    assert "2 of 2 heads identifiable, n = 8" in repr(found)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_correlations_equal_scipys(family: str) -> None:
    trace = traced(family)
    found, kept = trace.effective_correlation(), trace.map("effective").values
    n = len(trace.tokens)
    allowed = torch.ones(n, n, dtype=torch.bool)
    allowed = allowed.tril() if family in CAUSAL else allowed
    for layer in range(3):
        for head in range(4):
            a, b = (x[layer, head][allowed].numpy() for x in (trace.attention, kept))
            r, rho = scipy.stats.pearsonr(a, b).statistic, scipy.stats.spearmanr(a, b).statistic
            assert float(found.pearson[layer, head]) == pytest.approx(r, abs=1e-6)
            assert float(found.spearman[layer, head]) == pytest.approx(rho, abs=1e-6)
    assert "baseline" in repr(found)


def test_special_tokens_are_summed_before_and_after() -> None:
    trace = traced("bert")
    special = [i for i, token in enumerate(trace.tokens) if token.special]
    assert len(special) == 2
    found = trace.effective_correlation()
    for matrix, sums in (
        (trace.attention, found.special_before),
        (trace.map("effective").values, found.special_after),
    ):
        expected = sum(matrix[..., i].mean(-1) for i in special)
        torch.testing.assert_close(sums, expected)


def test_texts_without_special_tokens_give_nothing_to_them() -> None:
    found = traced("gpt2").effective_correlation()
    assert (found.special_before == 0).all()
    assert (found.special_after == 0).all()


@pytest.mark.parametrize(
    ("n", "expected"), [(32, 1.0), (64, 1.0), (96, 0.81), (128, 0.69), (256, 0.48)]
)
def test_the_random_baseline_falls_beyond_the_head(n: int, expected: float) -> None:
    assert random_baseline(64, everything(n), heads=2) == pytest.approx(expected, abs=0.05)


def everything(n: int) -> Tensor:
    return torch.ones(n, n) > 0


def test_the_baseline_of_causal_models_is_higher_and_seeded() -> None:
    first, again = (random_baseline(8, looking_back(40), seed=3, heads=2) for _ in range(2))
    assert first == again
    assert 1 > first > random_baseline(8, everything(40), seed=3, heads=2)


def test_correlations_and_baselines_are_of_each_layers_window() -> None:
    family = "modernbert"
    trace = windowed(family)
    found, kept = trace.effective_correlation(seed=4), trace.map("effective").values
    n = len(trace.tokens)
    for layer in range(3):
        visible = within_window(family, layer, n)
        assert float(found.baseline[layer]) == pytest.approx(random_baseline(8, visible, 4))
        for head in range(4):
            a, b = (x[layer, head][visible].numpy() for x in (trace.attention, kept))
            r, rho = scipy.stats.pearsonr(a, b).statistic, scipy.stats.spearmanr(a, b).statistic
            assert float(found.pearson[layer, head]) == pytest.approx(r, abs=1e-6)
            assert float(found.spearman[layer, head]) == pytest.approx(rho, abs=1e-6)
    # the narrower, the less can be otherwise
    assert found.baseline[0] < found.baseline[1] == found.baseline[2]

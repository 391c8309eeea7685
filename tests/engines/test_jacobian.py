"""The estimates of Hidden Token Attribution: unbiased, and as far off as they say."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from prosect.engines.jacobian import Squares, along_input, estimated, exact, shares

N, D = 5, 12


def linear_model(seed: int = 0) -> Tensor:
    """Two observed maps from all tokens to all tokens, [observed, target, d, source, d]."""
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(2, N, D, N, D, generator=generator, dtype=torch.float64)
    # a source that hardly matters, and one whose block has rank 1: the extremes of an estimate
    maps[..., 1, :] *= 0.01
    maps[0, 2, :, 3] = torch.outer(maps[0, 2, :, 3, 0], maps[0, 2, 0, 3])
    return maps


def carry_of(maps: Tensor):
    def carry(dx: Tensor) -> Tensor:
        return torch.einsum("ltasb,psb->lpta", maps, dx)

    return carry


def ignore(done: int) -> None: ...


MAPS = linear_model()
X = torch.randn(N, D, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
BLOCKS = MAPS.square().sum((2, 4))


@pytest.mark.parametrize("batch", [1, 5, 12, 1000])
def test_exact_squares_are_those_of_the_blocks(batch: int) -> None:
    found = exact(X, carry_of(MAPS), 2, batch, ignore)
    torch.testing.assert_close(found.values, BLOCKS)
    assert (found.variance == 0).all()


@pytest.mark.parametrize("batch", [1, 3, 1000])
def test_along_the_input_is_the_block_times_the_input(batch: int) -> None:
    found = along_input(X, carry_of(MAPS), 2, batch, ignore)
    expected = torch.einsum("ltasb,sb->ltsa", MAPS, X).square().sum(-1)
    torch.testing.assert_close(found.values, expected)


def sampled(seed: int, probes: int = 16, batch: int = 1000) -> Squares:
    generator = torch.Generator().manual_seed(seed)
    return estimated(X, carry_of(MAPS), 2, batch, ignore, probes, generator)


def test_the_square_is_unbiased() -> None:
    found = sampled(0, probes=4000)
    off = (found.values - BLOCKS) / found.variance.sqrt()
    assert float(off.abs().max()) <= 4
    assert float((found.values / BLOCKS - 1).abs().max()) < 0.1


def test_the_variance_is_that_of_the_mean_of_the_probes() -> None:
    means = torch.stack([sampled(seed).values for seed in range(400)])
    said = torch.stack([sampled(seed).variance for seed in range(400)]).mean(0)
    assert float((means.var(0) / said).median()) == pytest.approx(1.0, abs=0.1)
    torch.testing.assert_close(means.var(0), said, rtol=0.4, atol=0)


def test_standard_errors_cover_the_exact_share_as_often_as_they_claim() -> None:
    truth, _ = shares(Squares(BLOCKS, torch.zeros_like(BLOCKS)))
    covered = []
    for seed in range(200):
        share, error = shares(sampled(seed))
        # 15 degrees of freedom: 95 % lie within 2.131 standard errors
        covered.append(((share - truth).abs() <= 2.131 * error).double())
    rate = torch.stack(covered).mean(0)
    assert 0.93 <= float(rate.mean()) <= 0.97
    # of each value too: 200 trials are 0.95 ± 0.015
    assert float(rate.min()) >= 0.85


def test_seeds_and_only_seeds_decide() -> None:
    assert torch.equal(sampled(3).values, sampled(3).values)
    assert (sampled(3).values != sampled(4).values).any()
    torch.testing.assert_close(sampled(3, batch=7).values, sampled(3, batch=80).values)


def test_progress_counts_every_tangent_batch_by_batch() -> None:
    done: list[int] = []
    exact(X, carry_of(MAPS), 2, 5, done.append)
    assert done == [5, 5, 2] * N
    done = []
    along_input(X, carry_of(MAPS), 2, 2, done.append)
    assert done == [2, 2, 1]
    done = []
    estimated(X, carry_of(MAPS), 2, 3, done.append, 4, torch.Generator())
    assert done == [3] * 6 + [2]


def test_it_can_be_interrupted() -> None:
    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exact(X, carry_of(MAPS), 2, 4, stop)


def test_shares_are_of_norms_and_their_error_is_to_first_order() -> None:
    values = torch.tensor([[[9.0, 16.0, 9.0]]], dtype=torch.float64)
    variance = torch.tensor([[[0.36, 0.0, 0.0]]], dtype=torch.float64)
    share, error = shares(Squares(values, variance))
    assert share.flatten().tolist() == pytest.approx([0.3, 0.4, 0.3])
    # the norm 3 has standard error 0.6 / (2 · 3) = 0.1; shares have derivatives 7/100, −4/100, −3/100
    assert error.flatten().tolist() == pytest.approx([0.007, 0.004, 0.003])


def test_what_nothing_moves_has_no_shares() -> None:
    zero = torch.zeros(1, 2, 2, dtype=torch.float64)
    share, error = shares(Squares(zero, zero))
    assert (share == 0).all()
    assert (error == 0).all()

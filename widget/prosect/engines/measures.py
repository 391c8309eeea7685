"""Measures that compare the scopes of a layer (Kobayashi et al. 2021, 2024)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def spearman(a: Float[Tensor, "*axes"], b: Float[Tensor, "*axes"]) -> Float[Tensor, ""]:
    """Spearman's ρ of two maps, flattened; equal values share the mean of their ranks.

    As :func:`pearson` where one is constant.
    """
    if torch.equal(a, b):
        return a.new_ones((), dtype=torch.float64)
    x, y = (ranks(values.flatten().double()) for values in (a, b))
    x, y = x - x.mean(), y - y.mean()
    return (x @ y) / (x.norm() * y.norm())


def ranks(values: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = torch.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    return (ends - (counts - 1) / 2)[inverse]


def contextualization_change(
    before: Float[Tensor, "*axes"], after: Float[Tensor, "*axes"]
) -> float:
    """1 − ρ between a map before and after a component (Kobayashi et al. 2024): 0 is no change.

    Of the entries that can be other than zero; a single one has no order that could change.
    """
    return 0.0 if before.numel() < 2 else 1.0 - float(spearman(before, after))


def mixing_ratio(
    own: Float[Tensor, "*axes"], others: Float[Tensor, "*axes"]
) -> Float[Tensor, "*axes"]:
    """The ratio |Σ_{j≠i}| / (|Σ_{j≠i}| + |j=i|) of Kobayashi et al. (2021): sums before lengths.

    0 where both are nothing.
    """
    return others / _positive(others + own)


def top_pairs(
    change: Float[Tensor, "target source"], k: int
) -> tuple[Int[Tensor, "pair 2"], Float[Tensor, "pair"]]:
    """The k pairs (target, source) that a component amplified most, largest change first."""
    values, places = change.flatten().topk(min(k, change.numel()))
    n = change.shape[1]
    return torch.stack([places // n, places % n], dim=-1), values


def undone(
    before: Float[Tensor, "target source"],
    after: Float[Tensor, "target source"],
    later: Float[Tensor, "target source"],
) -> float:
    """How much of what a component changed in a map a later one takes back.

    With every map scaled to rows that sum to 1, the share of the change after − before that later −
    after reverses: 1 means the map is back where it was along that direction, 0 that nothing is
    taken back, negative that the change is carried on. Of no change nothing is taken back; a row of
    zeros stays one.
    """
    a, b, c = (m / _positive(m.sum(-1, keepdim=True)) for m in (before, after, later))
    change, answer = (b - a).flatten().double(), (c - b).flatten().double()
    return 0.0 - float(answer @ change / _positive(change @ change))


def _positive(size: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Clamp to the smallest positive number, to divide by."""
    return size.clamp_min(torch.finfo(size.dtype).tiny)


def outlier_dimensions(size: Float[Tensor, "d"], deviations: float = 3.0) -> Int[Tensor, "outlier"]:
    """The dimensions whose size is more than ``deviations`` standard deviations above the mean."""
    return (size > size.mean() + deviations * size.std()).nonzero()[:, 0]


def pearson(a: Float[Tensor, "n"], b: Float[Tensor, "n"]) -> float:
    """Pearson's r. It is 1 for equal maps, also constant ones, and NaN if only one is constant."""
    if torch.equal(a, b):
        return 1.0
    x, y = a.double() - a.double().mean(), b.double() - b.double().mean()
    return float((x @ y) / (x.norm() * y.norm()))

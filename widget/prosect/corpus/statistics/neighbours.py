"""The k nearest neighbours among the training examples of the same group."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from prosect.corpus.statistics.classifier import Examples

Metric = Literal["cosine", "l2"]
DECIMALS = 5
"""Cosines, and distances in units of the largest one, that are the same to so many are equal."""
NONE = -1
"""The prediction for a group without a training example."""


def nearest(
    examples: Examples,
    groups: Sequence[Hashable],
    test: Examples,
    test_groups: Sequence[Hashable],
    mix: Float[Tensor, "subset term"],
    *,
    k: int = 5,
    metric: Metric = "cosine",
) -> Int[np.ndarray, "subset example"]:
    """The class that most of the k nearest neighbours of the same group have.

    With fewer than k in the group, all of them vote. Of classes with equally many votes, the one of
    the nearest neighbour wins; of neighbours equally near (to five decimals of the cosine, or of the
    largest distance), the one that comes first.

    Parameters
    ----------
    examples, test
        What is learned from and what is judged.
    groups, test_groups
        The group of each example, such as its lemma.
    mix
        1 where a term is in a subset.
    k
        How many neighbours vote.
    metric
        "cosine", in which a vector of zeros is as far from all; or "l2".

    Returns
    -------
        [subset, example], the classes; :data:`NONE` where the group has no training example.
    """
    members: dict[Hashable, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    asked: dict[Hashable, list[int]] = {}
    for i, group in enumerate(test_groups):
        asked.setdefault(group, []).append(i)
    found = torch.full((len(mix), len(test)), NONE)
    for group, places in asked.items():
        if group not in members:
            continue
        own = members[group]
        x = torch.einsum("st,tnd->snd", mix.to(test.terms), test.terms[:, places])
        y = torch.einsum("st,tnd->snd", mix.to(test.terms), examples.terms[:, own])
        # stable, so that of equals the first one stays the first
        order = _distances(x, y, metric).sort(dim=-1, stable=True).indices[..., :k]
        found[:, places] = _winners(examples.labels[own][order]).cpu()
    return found.numpy()


def _distances(x: Tensor, y: Tensor, metric: Metric) -> Float[Tensor, "subset example neighbour"]:
    """Distances in which rounding does not show, so that vectors which are equal stay equal."""
    x, y = x.double(), y.double()
    if metric == "l2":
        # not by inner products: neighbours may be nearer than those can tell
        far = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        unit = far.amax(-1, keepdim=True).clamp(min=torch.finfo(far.dtype).tiny)
        return (far / unit).round(decimals=DECIMALS)
    x, y = (torch.nn.functional.normalize(v, dim=-1) for v in (x, y))
    return -(x @ y.transpose(1, 2)).round(decimals=DECIMALS)


def _winners(votes: Int[Tensor, "subset example k"]) -> Int[Tensor, "subset example"]:
    """The class with most votes; the first of them in the order of the neighbours."""
    counts = (votes[..., :, None] == votes[..., None, :]).sum(-1)
    first = counts.argmax(-1, keepdim=True)  # of equals, argmax gives the first
    return votes.gather(-1, first)[..., 0]

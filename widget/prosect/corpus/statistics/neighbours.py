"""The k nearest neighbours among the training examples of the same group."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from prosect.corpus.statistics.classifier import Examples

NeighbourMetric = Literal["cosine", "l2"]
DECIMALS = 5
"""Decimals kept before comparing distances: of the cosine, or of the fraction of the largest."""
NO_CLASS = -1
"""The prediction for a group without a training example."""


def knn_classes(
    examples: Examples,
    groups: Sequence[Hashable],
    test: Examples,
    test_groups: Sequence[Hashable],
    mix: Float[Tensor, "subset term"],
    *,
    k: int = 5,
    metric: NeighbourMetric = "cosine",
) -> Int[np.ndarray, "subset example"]:
    """Predict the majority class of the k nearest training examples of the same group.

    All examples of a group with fewer than k vote. A tie between classes goes to the class of the
    nearest neighbour. Distances are rounded to :data:`DECIMALS`; among equal ones the first
    training example is the nearest.

    Parameters
    ----------
    examples, test
        The training and the test examples.
    groups, test_groups
        The group of each example, such as its lemma.
    mix
        1 where a term is in a subset.
    k
        The number of neighbours that vote.
    metric
        "cosine", for which a zero vector is equally far from all others, or "l2".

    Returns
    -------
        [subset, example], the classes; :data:`NO_CLASS` if the group has no training example.
    """
    classes = torch.full((len(mix), len(test)), NO_CLASS)
    members = _indices_by_group(groups)
    for group, rows in _indices_by_group(test_groups).items():
        if group not in members:
            continue
        own = members[group]
        x = torch.einsum("st,tnd->snd", mix.to(test.terms), test.terms[:, rows])
        y = torch.einsum("st,tnd->snd", mix.to(test.terms), examples.terms[:, own])
        # a stable sort keeps the first of equally near neighbours first
        order = _distances(x, y, metric).sort(dim=-1, stable=True).indices[..., :k]
        classes[:, rows] = _majority(examples.labels[own][order]).cpu()
    return classes.numpy()


def _indices_by_group(groups: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    indices: dict[Hashable, list[int]] = {}
    for i, group in enumerate(groups):
        indices.setdefault(group, []).append(i)
    return indices


def _distances(
    x: Tensor, y: Tensor, metric: NeighbourMetric
) -> Float[Tensor, "subset example neighbour"]:
    """Distances rounded to :data:`DECIMALS`, so that equal vectors have equal distances."""
    x, y = x.double(), y.double()
    if metric == "l2":
        # direct differences: the matrix-product form loses small distances to cancellation
        distances = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        largest = distances.amax(-1, keepdim=True)
        unit = largest.clamp(min=torch.finfo(distances.dtype).tiny)
        return (distances / unit).round(decimals=DECIMALS)
    x, y = (torch.nn.functional.normalize(v, dim=-1) for v in (x, y))
    return -(x @ y.transpose(1, 2)).round(decimals=DECIMALS)


def _majority(votes: Int[Tensor, "subset example k"]) -> Int[Tensor, "subset example"]:
    """The most frequent class of each row of votes; the first in order if several are."""
    counts = (votes[..., :, None] == votes[..., None, :]).sum(-1)
    first = counts.argmax(-1, keepdim=True)  # argmax gives the first of equal counts
    return votes.gather(-1, first)[..., 0]

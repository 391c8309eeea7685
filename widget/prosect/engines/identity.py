"""Token identifiability by nearest neighbour (Brunner et al. 2020, section 3)."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

Metric = Literal["cosine", "l2"]
METRICS: tuple[Metric, ...] = ("cosine", "l2")


def similarity(
    hidden: Float[Tensor, "layer+1 token d"],
    candidates: Float[Tensor, "candidate d"],
    metric: Metric,
) -> Float[Tensor, "layer+1 token candidate"]:
    """Cosine similarity (larger is nearer), or minus the Euclidean distance."""
    if metric == "cosine":
        unit = torch.nn.functional.normalize
        return unit(hidden, dim=-1) @ unit(candidates, dim=-1).T
    # the matrix-product form of cdist loses the small distances, the ones that matter here
    exact = "donot_use_mm_for_euclid_dist"
    return -torch.cdist(hidden, candidates.expand(len(hidden), -1, -1), compute_mode=exact)


def nearest(
    scores: Float[Tensor, "layer+1 token token"], k: int
) -> tuple[Int[Tensor, "layer+1 token k"], Float[Tensor, "layer+1 token k"]]:
    """The k best candidates of every token, best first; among equals the token itself comes first.

    Equal candidates exist: two equal words enter a model without position embeddings as one vector.
    """
    n = scores.shape[-1]
    positions = torch.arange(n, device=scores.device)
    own_first = ((positions[:, None] + positions) % n).expand_as(scores)
    best, order = scores.gather(-1, own_first).sort(dim=-1, descending=True, stable=True)
    return own_first.gather(-1, order)[..., :k], best[..., :k]

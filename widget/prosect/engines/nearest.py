"""Token identifiability by nearest neighbour (Brunner et al. 2020, section 3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

Metric = Literal["cosine", "l2", "dot"]
METRICS: tuple[Metric, ...] = ("cosine", "l2", "dot")


def similarity(
    hidden: Float[Tensor, "*layers token d"],
    candidates: Float[Tensor, "candidate d"] | Float[Tensor, "token candidate d"],
    metric: Metric,
) -> Float[Tensor, "*layers token candidate"]:
    """Cosine similarity or inner product (larger is nearer), or minus the Euclidean distance.

    The candidates are the same for all tokens, or each token has its own.
    """
    if metric == "l2":
        return -_distances(hidden, candidates)
    if metric == "cosine":
        unit = torch.nn.functional.normalize
        hidden, candidates = unit(hidden, dim=-1), unit(candidates, dim=-1)
    if candidates.ndim == 2:
        return hidden @ candidates.T
    return (candidates @ hidden[..., None])[..., 0]


def _distances(hidden: Tensor, candidates: Tensor) -> Tensor:
    """Euclidean distances without the cancellation of the matrix-product form in single precision."""
    if candidates.ndim == 2 and len(candidates) <= 2048:
        exact = "donot_use_mm_for_euclid_dist"
        return torch.cdist(
            hidden, candidates.expand(*hidden.shape[:-2], -1, -1), compute_mode=exact
        )
    h, c = hidden.double(), candidates.double()
    squared = h @ c.T if c.ndim == 2 else (c @ h[..., None])[..., 0]
    # in place: there is one number for each vector and word of a vocabulary
    squared.mul_(-2).add_(h.square().sum(-1, keepdim=True)).add_(c.square().sum(-1))
    return squared.clamp_min_(0.0).sqrt_().to(hidden.dtype)


def nearest_of_many(
    hidden: Float[Tensor, "layer+1 token d"],
    blocks: Iterable[tuple[int, Tensor]],
    own: Int[Tensor, "token"],
    k: int,
    metric: Metric,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The k best candidates, which come in blocks so that a whole vocabulary fits in memory.

    Parameters
    ----------
    hidden
        What to identify.
    blocks
        The number of a block's first candidate, and its candidates as :func:`similarity` takes them.
    own
        The number of the right candidate of every token.
    k
        How many.
    metric
        By what.

    Returns
    -------
    ids, scores [layer+1, token, k], best first and among equals the right one; whether that is
    among the best [layer+1, token]; and how many share the best score [layer+1, token].
    """
    shape = hidden.shape[:-1]
    ids = torch.empty(*shape, 0, dtype=torch.long, device=hidden.device)
    scores = hidden.new_empty(*shape, 0)
    top, ties = hidden.new_full(shape, -torch.inf), torch.zeros_like(ids[..., :0].sum(-1))
    right = hidden.new_full(hidden.shape[:-1], -torch.inf)
    for first, candidates in blocks:
        found = similarity(hidden, candidates, metric)
        count = found.shape[-1]
        here = (own >= first) & (own < first + count)
        if bool(here.any()):
            place = (own - first).clamp(0, count - 1).expand(found.shape[:-1])[..., None]
            right = torch.where(here, found.gather(-1, place)[..., 0], right)
        best, order = found.topk(min(k, count), dim=-1)
        higher = torch.maximum(top, best[..., 0])
        ties = torch.where(higher > top, 0, ties) + (found == higher[..., None]).sum(-1)
        top = higher
        both = torch.cat([scores, best], dim=-1)
        scores, chosen = both.topk(min(k, both.shape[-1]), dim=-1)
        ids = torch.cat([ids, order + first], dim=-1).gather(-1, chosen)
    # the right one in front of them all: a stable sort leaves it before its equals
    numbers = own.expand(shape)[..., None]
    others = scores.masked_fill(ids == numbers, -torch.inf)
    best, order = torch.cat([right[..., None], others], dim=-1).sort(
        dim=-1, descending=True, stable=True
    )
    ids = torch.cat([numbers, ids], dim=-1).gather(-1, order)
    count = scores.shape[-1]
    return ids[..., :count], best[..., :count], right >= top, ties


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

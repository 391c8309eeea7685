"""The four terms of every embedding: e = i + h + f + c (Mickus et al. 2022).

Decoders with cross-attention have a fifth, what attention to the source text wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.anatomy.vocabulary import Term
from prosect.engines.linear import (
    Centring,
    norm_mean,
    through_norm,
    through_projection,
)
from prosect.engines.records import Normed, Projected, Record, State, Wrote


def terms_of(
    stream: Sequence[Record], names: Sequence[Term], centring: Centring = "bias"
) -> Float[Tensor, "term layer+1 token d"]:
    """Split every hidden state into what embeddings, attention, feed-forwards and biases wrote.

    The sums of Mickus et al. (2022) by recurrence, in one pass: each sublayer adds its output, less
    its bias, to its own term and the bias to c; each norm scales all terms by g/σ and adds
    b − g·m/σ to c.

    Parameters
    ----------
    stream
        The records of a run, from the embeddings to the last hidden state.
    names
        The terms, in the order wanted.
    centring
        Where the means that norms subtract go.

    Returns
    -------
    Tensor [term, layer+1, token, d]
    """
    states = [record for record in stream if isinstance(record, State)]
    hidden = states[-1].hidden
    result = hidden.new_empty(len(names), len(states), *hidden.shape)
    start = stream[0]
    assert isinstance(start, Wrote)
    terms = start.output.new_zeros(len(names), *start.output.shape)
    bias = names.index("bias")
    for record in stream:
        match record:
            case Wrote():
                mine, ours = _written(record, centring)
                terms[names.index(record.term)] += mine
                if ours is not None:
                    terms[bias] += ours
            case Normed():
                terms = through_norm(terms, record, centring, out=terms)
                for rest in (record.bias, norm_mean(record, centring)):
                    if rest is not None:
                        terms[bias] += rest
            case Projected():
                terms = through_projection(terms, record)
                if record.bias is not None:
                    terms[bias] += record.bias
            case State():
                result[:, record.layer] = terms
                if record.layer + 1 < len(states):  # where the next state's terms grow, in place
                    terms = result[:, record.layer + 1].copy_(terms)
    return result


def _written(record: Wrote, centring: Centring) -> tuple[Tensor, Tensor | None]:
    """What a sublayer added to the stream: its own part, and what belongs to the bias term."""
    mine, ours = record.output, record.bias
    if ours is not None:
        mine = mine - ours
    if record.after is None:
        return mine, ours
    mine = through_norm(mine, record.after, centring)
    rests = [record.after.bias, norm_mean(record.after, centring)]
    if ours is not None:
        rests.append(through_norm(ours.expand_as(mine), record.after, centring))
    kept = [rest for rest in rests if rest is not None]
    return mine, torch.stack([rest.expand_as(mine) for rest in kept]).sum(0) if kept else None


def first_break(stream: Sequence[Record], tolerance: float) -> str:
    """Name the first step after which the sum of what was written is no longer the model's stream.

    Each norm recorded the mean and spread of the stream that it really received, each state the
    stream itself; a sum that misses any of them has broken at the last step before.
    """
    start = stream[0]
    assert isinstance(start, Wrote)
    x = torch.zeros_like(start.output)
    step = start.name
    for record in stream:
        match record:
            case Wrote():
                mine, ours = _written(record, "bias")
                x = x + mine if ours is None else x + mine + ours
            case Normed():
                if _moments_off(x, record) > tolerance:
                    return step
                x = through_norm(x, record)
                for rest in (record.bias, norm_mean(record)):
                    x = x if rest is None else x + rest
            case Projected():
                x = through_projection(x, record)
                x = x if record.bias is None else x + record.bias
            case State():
                if not reconstruction_error(x, record.hidden).max() <= tolerance:
                    return step
                continue
        step = record.name
    return step


def _moments_off(x: Float[Tensor, "token d"], norm: Normed) -> float:
    """How far the mean and variance of x are from those that the norm saw, in units of σ."""
    if norm.mean is None:
        variance, shift = x.square().mean(-1, keepdim=True), torch.zeros_like(norm.std)
    else:
        variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
        shift = (mean - norm.mean).abs() / norm.std
    off = (variance - norm.variance).abs() / norm.std.square() + shift
    return float(off.nan_to_num(torch.inf).max())


def reconstruction_error(
    total: Float[Tensor, "*axes d"], whole: Float[Tensor, "*axes d"]
) -> Float[Tensor, "*axes"]:
    """|Σ parts − e| / |e| for each vector: the certificate of a decomposition."""
    gap = torch.linalg.vector_norm(total - whole, dim=-1)
    # a zero vector that is split into parts that cancel is split exactly
    return torch.where(gap == 0, gap, gap / torch.linalg.vector_norm(whole, dim=-1))


def importance(
    parts: Float[Tensor, "part *axes d"], whole: Float[Tensor, "*axes d"]
) -> Float[Tensor, "part *axes"]:
    """μ(e, a) = <e, a> / |e|² (Mickus et al. 2022).

    Sums to 1 over the parts; a single one may be below 0 or above 1. 0 where the whole is zero.
    """
    size = whole.square().sum(-1)
    return (parts * whole).sum(-1) / size.clamp_min(torch.finfo(size.dtype).tiny)


def cosine(
    parts: Float[Tensor, "part *axes d"], whole: Float[Tensor, "*axes d"]
) -> Float[Tensor, "part *axes"]:
    """<e, a> / |e||a| in [−1, 1]; 0 where the part is zero."""
    lengths = torch.linalg.vector_norm(parts, dim=-1) * torch.linalg.vector_norm(whole, dim=-1)
    products = (parts * whole).sum(-1)
    return torch.where(lengths > 0, products / lengths, torch.zeros_like(products))


def norm_ratio(
    parts: Float[Tensor, "part *axes d"], whole: Float[Tensor, "*axes d"]
) -> Float[Tensor, "part *axes"]:
    """|a| / |e|; of nothing in nothing, 0."""
    lengths = torch.linalg.vector_norm(parts, dim=-1)
    return torch.where(lengths == 0, lengths, lengths / torch.linalg.vector_norm(whole, dim=-1))

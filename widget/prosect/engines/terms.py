"""The four terms of every embedding: e = i + h + f + c (Mickus et al. 2022).

Decoders with cross-attention have a fifth, what attention to the source text wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.engines.linear import (
    Centring,
    norm_mean,
    rest_through_norm,
    rest_through_projection,
    through_norm,
    through_projection,
)
from prosect.engines.records import (
    AttentionRecord,
    FeedForwardRecord,
    NormRecord,
    ProjectionRecord,
    StateRecord,
    Stream,
    Term,
)


def terms_of(
    stream: Stream, names: Sequence[Term], centring: Centring = "bias"
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
    count, hidden = len(stream.states), stream.states[-1].hidden
    result = hidden.new_empty(len(names), count, *hidden.shape)
    start = stream.start.output
    terms = start.new_zeros(len(names), *start.shape)
    bias = names.index("bias")
    terms[names.index(stream.start.term)] += start
    for record in stream.steps:
        match record:
            case AttentionRecord() | FeedForwardRecord():
                own, token_less = _written(record, centring)
                terms[names.index(record.term)] += own
                if token_less is not None:
                    terms[bias] += token_less
            case NormRecord():
                terms = through_norm(terms, record, centring, out=terms)
                for rest in (record.bias, norm_mean(record, centring)):
                    if rest is not None:
                        terms[bias] += rest
            case ProjectionRecord():
                terms = through_projection(terms, record)
                if record.map.bias is not None:
                    terms[bias] += record.map.bias
            case StateRecord():
                result[:, record.index] = terms
                if record.index + 1 < count:  # the next state's terms grow in place
                    terms = result[:, record.index + 1].copy_(terms)
    return result


def _written(
    record: AttentionRecord | FeedForwardRecord, centring: Centring
) -> tuple[Tensor, Tensor | None]:
    """What a sublayer added to the stream: its own part, and what belongs to the bias term."""
    own, bias = record.output, record.bias
    if bias is not None:
        own = own - bias
    if record.after is None:
        return own, bias
    own = through_norm(own, record.after, centring)
    rests = [record.after.bias, norm_mean(record.after, centring)]
    if bias is not None:
        rests.append(through_norm(bias.expand_as(own), record.after, centring))
    kept = [rest.expand_as(own) for rest in rests if rest is not None]
    return own, torch.stack(kept).sum(0) if kept else None


def first_break(stream: Stream, tolerance: float) -> str:
    """Name the first step after which the sum of what was written is no longer the model's stream.

    Each norm recorded the mean and spread of the stream that it really received, each state the
    stream itself; a sum that misses any of them has broken at the last step before.
    """
    x, step = stream.start.output, stream.start.name
    for record in stream.steps:
        match record:
            case AttentionRecord() | FeedForwardRecord():
                own, bias = _written(record, "bias")
                x = x + own if bias is None else x + own + bias
            case NormRecord():
                if _moments_off(x, record) > tolerance:
                    return step
                x = rest_through_norm(x, record)
            case ProjectionRecord():
                x = rest_through_projection(x, record)
            case StateRecord():
                if not reconstruction_error(x, record.hidden).max() <= tolerance:
                    return step
                continue
        step = record.name
    return step


def _moments_off(x: Float[Tensor, "token d"], norm: NormRecord) -> float:
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

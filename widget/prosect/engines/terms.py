"""The four terms of every embedding: e = i + h + f + c (Mickus et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.anatomy.stream import Normed, Projected, Record, State, Wrote
from prosect.anatomy.vocabulary import TERMS
from prosect.engines.parts import through_norm, through_projection

BIAS = TERMS.index("bias")


def four_terms(stream: Sequence[Record]) -> Float[Tensor, "term layer+1 token d"]:
    """Split every hidden state into what embeddings, attention, feed-forwards and biases wrote.

    The sums of Mickus et al. (2022) by recurrence, in one pass: each sublayer adds its output, less
    its bias, to its own term and the bias to c; each norm scales all four by g/σ and adds
    b − g·m/σ to c.

    Parameters
    ----------
    stream
        The records of a run, from the embeddings to the last hidden state.

    Returns
    -------
    Tensor [term, layer+1, token, d]
        In the order of :data:`prosect.anatomy.vocabulary.TERMS`.
    """
    states = [record for record in stream if isinstance(record, State)]
    result = states[-1].hidden.new_empty(len(TERMS), len(states), *states[-1].hidden.shape)
    start = stream[0]
    assert isinstance(start, Wrote)
    terms = start.output.new_zeros(len(TERMS), *start.output.shape)
    for record in stream:
        match record:
            case Wrote():
                mine = terms[TERMS.index(record.term)]
                mine += record.output
                if record.bias is not None:
                    mine -= record.bias
                    terms[BIAS] += record.bias
            case Normed():
                terms, rest = through_norm(terms, record)
                terms[BIAS] += rest
            case Projected():
                terms, rest = through_projection(terms, record)
                if rest is not None:
                    terms[BIAS] += rest
            case State():
                result[:, record.layer] = terms
    return result


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
                x = x + record.output
            case Normed():
                variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
                spread = (variance - record.variance).abs() / record.std.square()
                shift = (mean - record.mean).abs() / record.std
                if not (spread + shift).max() <= tolerance:
                    return step
                x, rest = through_norm(x, record)
                x = x + rest
            case Projected():
                x, rest = through_projection(x, record)
                x = x if rest is None else x + rest
            case State():
                if not reconstruction_error(x, record.hidden).max() <= tolerance:
                    return step
                continue
        step = record.name
    return step


def reconstruction_error(
    total: Float[Tensor, "*axes d"], whole: Float[Tensor, "*axes d"]
) -> Float[Tensor, "*axes"]:
    """|Σ parts − e| / |e| for each vector: the certificate of a decomposition."""
    gap = torch.linalg.vector_norm(total - whole, dim=-1)
    return gap / torch.linalg.vector_norm(whole, dim=-1)


def importance(
    terms: Float[Tensor, "term *axes d"], whole: Float[Tensor, "*axes d"]
) -> Float[Tensor, "term *axes"]:
    """μ(e, a) = <e, a> / |e|² (Mickus et al. 2022).

    Sums to 1 over the terms; a single one may be below 0 or above 1.
    """
    return (terms * whole).sum(-1) / whole.square().sum(-1)


def cosine(
    terms: Float[Tensor, "term *axes d"], whole: Float[Tensor, "*axes d"]
) -> Float[Tensor, "term *axes"]:
    """<e, a> / |e||a| in [−1, 1]; 0 where the term is zero."""
    lengths = torch.linalg.vector_norm(terms, dim=-1) * torch.linalg.vector_norm(whole, dim=-1)
    products = (terms * whole).sum(-1)
    return torch.where(lengths > 0, products / lengths, torch.zeros_like(products))


def norm_ratio(
    terms: Float[Tensor, "term *axes d"], whole: Float[Tensor, "*axes d"]
) -> Float[Tensor, "term *axes"]:
    """|a| / |e|."""
    return torch.linalg.vector_norm(terms, dim=-1) / torch.linalg.vector_norm(whole, dim=-1)

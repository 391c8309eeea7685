"""Whole-model token contributions: the parts of each input token through all layers, exactly.

With the attention weights α, the spreads σ and the factors of the activations frozen at what the run
gave them, the model is linear in its input tokens. Each token's part goes through the layers by itself,
as in a forward pass whose softmax, variances and activations are constants. All parts and the
token-less rest sum to every hidden state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.engines.activation import Baseline
from prosect.engines.linear import (
    FrozenFeedForward,
    freeze,
    rest_through_attention,
    rest_through_norm,
    rest_through_projection,
    through_attention,
    through_feed_forward,
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
)


def rest_of(
    stream: Stream, baseline: Baseline = "zero"
) -> tuple[list[Float[Tensor, "token d"]], dict[int, FrozenFeedForward]]:
    """The token-less part of every hidden state, and every feed-forward frozen with it, by layer.

    It starts at zero, since the embeddings belong to tokens. It goes through the same attention,
    norms and activations as the parts, and every bias is added to it.
    """
    rest = torch.zeros_like(stream.start.output)
    entered = rest
    states: list[Tensor] = []
    feed_forwards: dict[int, FrozenFeedForward] = {}
    for record in stream.steps:
        match record:
            case AttentionRecord():
                entered = rest
                rest = rest + _rest_of_attention(rest, record)
            case FeedForwardRecord():
                read = entered if record.parallel else rest
                read = read if record.before is None else rest_through_norm(read, record.before)
                frozen = freeze(record, read, baseline)
                feed_forwards[record.layer] = frozen
                out = frozen.rest
                out = out if record.after is None else rest_through_norm(out, record.after)
                rest = rest + out
            case NormRecord():
                rest = rest_through_norm(rest, record)
            case ProjectionRecord():
                rest = rest_through_projection(rest, record)
            case StateRecord():
                states.append(rest)
    return states, feed_forwards


def _rest_of_attention(
    rest: Float[Tensor, "token d"], record: AttentionRecord
) -> Float[Tensor, "token d"]:
    """The token-less part after attention, biases included. Cross-attention is token-less as a whole."""
    if record.term == "source":
        out = record.output
    else:
        read = rest if record.before is None else rest_through_norm(rest, record.before)
        out = rest_through_attention(read, record)
    return out if record.after is None else rest_through_norm(out, record.after)


def push(
    parts: Float[Tensor, "part token d"],
    stream: Stream,
    feed_forwards: dict[int, FrozenFeedForward],
) -> Iterator[Float[Tensor, "part token d"]]:
    """Carry parts of the embeddings through the run; yields them at every hidden state."""
    entered = parts
    for record in stream.steps:
        match record:
            case AttentionRecord(term="source"):
                continue
            case AttentionRecord():
                entered = parts
                read = parts if record.before is None else through_norm(parts, record.before)
                out = through_attention(read, record)
                parts = parts + (out if record.after is None else through_norm(out, record.after))
            case FeedForwardRecord():
                read = entered if record.parallel else parts
                read = read if record.before is None else through_norm(read, record.before)
                out = through_feed_forward(read, feed_forwards[record.layer])
                parts = parts + (out if record.after is None else through_norm(out, record.after))
            case NormRecord():
                parts = through_norm(parts, record)
            case ProjectionRecord():
                parts = through_projection(parts, record)
            case StateRecord():
                yield parts


def contributions(
    stream: Stream,
    sources: Sequence[int],
    baseline: Baseline = "zero",
    block: int = 8,
) -> Iterator[tuple[list[int], list[Float[Tensor, "source token d"]]]]:
    """The parts of some input tokens in every hidden state, a block of sources at a time.

    Yields
    ------
    The sources of the block, and for every hidden state their parts, [source, token, d].
    """
    _, feed_forwards = rest_of(stream, baseline)
    start = stream.start.output
    for first in range(0, len(sources), block):
        chosen = list(sources[first : first + block])
        parts = start.new_zeros(len(chosen), *start.shape)
        parts[range(len(chosen)), chosen] = start[chosen]
        yield chosen, list(push(parts, stream, feed_forwards))


def rollout(
    maps: Float[Tensor, "layer target source"], residual: float = 0.0
) -> Float[Tensor, "layer target source"]:
    """Attention rollout (Abnar & Zuidema 2020) of any maps: the product of row-normalised maps.

    ``residual`` mixes in that much of the identity once the rows are normalised; maps that include the
    residual connection, from ATTNRES on, need none (GlobEnc, Modarressi et al. 2022). A row of zeros
    stays one.
    """
    n = maps.shape[-1]
    rows = maps / maps.sum(-1, keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)
    mixed = (1 - residual) * rows + residual * torch.eye(n, dtype=maps.dtype, device=maps.device)
    rolled = []
    for layer in mixed:
        rolled.append(layer @ rolled[-1] if rolled else layer)
    return torch.stack(rolled)

"""Whole-model token contributions: the parts of each input token through all layers, exactly.

With the attention weights α, the spreads σ and the factors of the activations frozen at what the run
gave them, the model is linear in its input tokens: each token's part travels alone, like a forward
pass without its own softmax, variance and activation. All parts and the token-less rest sum to every
hidden state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.engines.activation import Baseline
from prosect.engines.records import Attended, Fed, Normed, Projected, Record, State, Wrote
from prosect.engines.scopes import Frozen, frozen, shaped, through


def rest_of(
    stream: Sequence[Record], parallel: Sequence[bool], baseline: Baseline = "zero"
) -> tuple[list[Float[Tensor, "token d"]], dict[int, Frozen]]:
    """The token-less part of every hidden state, and every feed-forward frozen with it.

    It starts at zero: everything that enters with the embeddings belongs to a token. It meets the
    same attention, norms and activations as the parts, and takes every bias along.
    """
    start = stream[0]
    assert isinstance(start, Wrote)
    rest = torch.zeros_like(start.output)
    entered = rest
    states: list[Tensor] = []
    feed_forwards: dict[int, Frozen] = {}
    for record in stream:
        match record:
            case Wrote(detail=Attended()):
                entered = rest
                rest = rest + _attend_rest(rest, record)
            case Wrote(detail=Fed()) as wrote:
                fed = wrote.detail
                assert isinstance(fed, Fed)
                read = entered if parallel[wrote.layer - 1] else rest
                read = read if wrote.before is None else through(read, wrote.before)
                ff = frozen(fed, read, baseline)
                feed_forwards[wrote.layer] = ff
                out = ff.rest
                rest = rest + (out if wrote.after is None else through(out, wrote.after))
            case Normed():
                rest = through(rest, record)
            case Projected():
                rest = rest @ record.weight
                rest = rest if record.bias is None else rest + record.bias
            case State():
                states.append(rest)
    return states, feed_forwards


def _attend_rest(rest: Float[Tensor, "token d"], wrote: Wrote) -> Float[Tensor, "token d"]:
    """What attention makes of the token-less part, biases included; of another text, all of it."""
    if wrote.term == "source":
        return wrote.output if wrote.after is None else through(wrote.output, wrote.after)
    read = rest if wrote.before is None else through(rest, wrote.before)
    out = attend(read, wrote)
    out = out if wrote.bias is None else out + wrote.bias
    return out if wrote.after is None else through(out, wrote.after)


def attend(x: Float[Tensor, "*part token d"], wrote: Wrote) -> Float[Tensor, "*part token d"]:
    """Σ_h α_h x W_V W_O with α frozen, biases left out."""
    attended = wrote.detail
    assert isinstance(attended, Attended)
    heads = len(attended.alpha)
    value = x @ attended.value_map.weight.detach().to(x)
    value = value.unflatten(-1, (len(attended.value), -1)).transpose(-2, -3)
    value = value.repeat_interleave(heads // len(attended.value), dim=-3)
    context = (attended.alpha.to(x) @ value).transpose(-2, -3).flatten(-2)
    return context @ attended.weight.to(x)


def push(
    parts: Float[Tensor, "part token d"],
    stream: Sequence[Record],
    parallel: Sequence[bool],
    feed_forwards: dict[int, Frozen],
) -> Iterator[Float[Tensor, "part token d"]]:
    """Carry parts of the embeddings through the run; yields them at every hidden state."""
    entered = parts
    for record in stream[1:]:
        match record:
            case Wrote(term="source"):
                continue
            case Wrote(detail=Attended()):
                entered = parts
                read = parts if record.before is None else _scaled(parts, record.before)
                out = attend(read, record)
                parts = parts + (out if record.after is None else _scaled(out, record.after))
            case Wrote(detail=Fed()):
                read = entered if parallel[record.layer - 1] else parts
                read = read if record.before is None else _scaled(read, record.before)
                out = feed(read, feed_forwards[record.layer])
                parts = parts + (out if record.after is None else _scaled(out, record.after))
            case Normed():
                parts = _scaled(parts, record)
            case Projected():
                parts = parts @ record.weight
            case State():
                yield parts


def _scaled(parts: Float[Tensor, "*part token d"], norm: Normed) -> Float[Tensor, "*part token d"]:
    return shaped(parts, norm) / norm.std


def feed(x: Float[Tensor, "*part token d"], ff: Frozen) -> Float[Tensor, "*part token d"]:
    """A frozen feed-forward, biases left out."""
    neurons = (x @ ff.w_in) * ff.a
    if ff.w_gate is not None and ff.b is not None:
        neurons = neurons + (x @ ff.w_gate) * ff.b
    return neurons @ ff.w_out


def contributions(
    stream: Sequence[Record],
    parallel: Sequence[bool],
    sources: Sequence[int],
    baseline: Baseline = "zero",
    block: int = 8,
) -> Iterator[tuple[list[int], list[Float[Tensor, "source token d"]]]]:
    """The parts of some input tokens in every hidden state, a block of sources at a time.

    Yields
    ------
    The sources of the block, and for every hidden state their parts, [source, token, d].
    """
    _, feed_forwards = rest_of(stream, parallel, baseline)
    start = stream[0]
    assert isinstance(start, Wrote)
    for first in range(0, len(sources), block):
        chosen = list(sources[first : first + block])
        parts = start.output.new_zeros(len(chosen), *start.output.shape)
        parts[range(len(chosen)), chosen] = start.output[chosen]
        yield chosen, list(push(parts, stream, parallel, feed_forwards))


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

"""The one linear machine: with α, σ and θ of a run frozen, every step maps parts to parts.

The parts sum to the stream before and after every step. The constants that a step adds (a norm's bias
and mean, a sublayer's bias) belong to no token. Functions named ``through_...`` leave them out;
functions named ``rest_through_...`` take the token-less part through the same step and add them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.engines.activation import Baseline, gated_factors, ratio
from prosect.engines.records import (
    Affine,
    AttentionRecord,
    FeedForwardRecord,
    NormRecord,
    ProjectionRecord,
)

Centring = Literal["bias", "each"]
"""Where the mean that a norm subtracts goes: to the bias term (Mickus et al. 2022), or each part
loses its own mean (Kobayashi et al. 2021). The sum is the same; in RMSNorm there is no mean."""


# --- norms ----------------------------------------------------------------------------------------


def through_norm(
    parts: Float[Tensor, "*part token d"],
    norm: NormRecord,
    centring: Centring = "each",
    out: Tensor | None = None,
) -> Float[Tensor, "*part token d"]:
    """Scale every part by g/σ; if each is centred by itself, after subtracting its own mean.

    The result is written to ``out`` where that is given; it may be ``parts``.
    """
    if centring == "each" and norm.mean is not None:
        parts = parts - parts.mean(-1, keepdim=True)
    return torch.mul(parts, norm_scale(norm), out=out)


def rest_through_norm(rest: Float[Tensor, "token d"], norm: NormRecord) -> Float[Tensor, "token d"]:
    """The token-less part, or a whole vector, through a norm: the bias b is added."""
    scaled = through_norm(rest, norm)
    return scaled if norm.bias is None else scaled + norm.bias


def norm_scale(norm: NormRecord) -> Float[Tensor, "token d"]:
    """g/σ of every token and dimension."""
    return 1 / norm.std if norm.gain is None else norm.gain / norm.std


def norm_mean(norm: NormRecord, centring: Centring) -> Float[Tensor, "token d"] | None:
    """−g·m/σ: the mean that it subtracts, unless every part subtracts its own."""
    return None if norm.mean is None or centring == "each" else -norm.mean * norm_scale(norm)


def centred_and_gained(x: Float[Tensor, "*axes d"], norm: NormRecord) -> Float[Tensor, "*axes d"]:
    """A norm's centring and gain, without its spread and bias: the same for every token."""
    if norm.mean is None:
        return x if norm.gain is None else x * norm.gain
    centred = x - x.mean(-1, keepdim=True)
    return centred if norm.gain is None else centred.mul_(norm.gain)


# --- projections of the whole stream --------------------------------------------------------------


def through_projection(
    parts: Float[Tensor, "*part token d_in"], projection: ProjectionRecord
) -> Float[Tensor, "*part token d_out"]:
    """Map every part by W."""
    return parts @ projection.map.weight(parts)


def rest_through_projection(
    rest: Float[Tensor, "token d_in"], projection: ProjectionRecord
) -> Float[Tensor, "token d_out"]:
    """The token-less part, or a whole vector, through a projection: the bias is added."""
    return projection.map(rest)


# --- attention ------------------------------------------------------------------------------------


def through_attention(
    x: Float[Tensor, "*part token d"], attention: AttentionRecord
) -> Float[Tensor, "*part token d"]:
    """Σ_h α_h x W_V W_O with α frozen, biases left out."""
    value = x @ attention.value_map.weight(x)
    value = value.unflatten(-1, (attention.kv_heads, -1)).transpose(-2, -3)
    context = attention.alpha.to(x) @ per_head(value, attention.heads)
    return context.transpose(-2, -3).flatten(-2) @ attention.output_map.weight(x)


def rest_through_attention(
    rest: Float[Tensor, "token d"], attention: AttentionRecord
) -> Float[Tensor, "token d"]:
    """The token-less part through attention: its biases are added."""
    out = through_attention(rest, attention)
    return out if attention.bias is None else out + attention.bias


def output_by_head(
    attention: AttentionRecord, like: Float[Tensor, "*axes"]
) -> Float[Tensor, "head d_head d"]:
    """W_O by head."""
    return attention.output_map.weight(like).unflatten(0, (attention.heads, -1))


def per_head(
    x: Float[Tensor, "*axes kv_head token d_head"], heads: int
) -> Float[Tensor, "*axes head token d_head"]:
    """Keys or values for every head of the queries: heads share them in groups."""
    shared = heads // x.shape[-3]
    return x if shared == 1 else x.repeat_interleave(shared, dim=-3)


def values_by_head(
    attention: AttentionRecord, value_bias: bool = True, dtype: torch.dtype | None = None
) -> Float[Tensor, "head source d_head"]:
    """The value vectors x W_V [+ b_V] that each head weighs; in another precision if one is given."""
    value, bias = attention.value.to(dtype or attention.value.dtype), attention.value_bias
    if not value_bias and bias is not None:
        value = value - bias[:, None].to(value)
    return per_head(value, attention.heads)


def sent(attention: AttentionRecord, value_bias: bool = True) -> Float[Tensor, "source head d"]:
    """f^h(x_j) = (x_j W_V + b_V) W_O of every head (Kobayashi et al. 2020), with or without b_V."""
    value = values_by_head(attention, value_bias)
    return (value @ output_by_head(attention, value)).transpose(0, 1)


def value_bias_output(
    attention: AttentionRecord, like: Float[Tensor, "*axes"]
) -> Float[Tensor, "d"] | None:
    """b_V W_O over all heads; each row of α sums to 1, so no weights are needed."""
    bias = attention.value_bias
    if bias is None:
        return None
    spread = per_head(bias[:, None].to(like), attention.heads)
    return spread.flatten() @ attention.output_map.weight(like)


# --- feed-forward ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FrozenFeedForward:
    """A feed-forward with its activation frozen: linear in the parts of its input.

    Part x_j becomes ((x_j W_in) ⊙ A [+ (x_j W_gate) ⊙ B]) W_out, with A and B of each target; what
    is of no token becomes the rest.
    """

    w_in: Float[Tensor, "d d_ff"]
    a: Float[Tensor, "target d_ff"]
    w_gate: Float[Tensor, "d d_ff"] | None
    b: Float[Tensor, "target d_ff"] | None
    w_out: Float[Tensor, "d_ff d"]
    rest: Float[Tensor, "target d"]


def freeze(
    feed_forward: FeedForwardRecord, rest: Float[Tensor, "target d"], baseline: Baseline
) -> FrozenFeedForward:
    """Freeze a feed-forward at what its run computed (Kobayashi et al. 2024, in closed form).

    Parameters
    ----------
    feed_forward
        The record.
    rest
        The token-less part of what it reads.
    baseline
        Where integrated gradients start: at zero or at the token-less part.
    """
    record, g = feed_forward, feed_forward.activation
    from_bias = baseline == "bias"
    w_out = record.output_map.weight(rest)
    w_in, u0 = _through_affine(rest, record.inner)
    w_gate = b = None
    if record.v is None or record.gate is None:
        a = ratio(g, record.u, u0 if from_bias else None)
        kept = g(u0) if from_bias else a * u0
    else:
        w_gate, v0 = _through_affine(rest, record.gate)
        starts = (u0, v0) if from_bias else (None, None)
        a, b = gated_factors(g, record.u, record.v, *starts)
        kept = g(u0) * v0 if from_bias else a * u0 + b * v0
    out = kept @ w_out
    bias = record.output_map.bias
    return FrozenFeedForward(w_in, a, w_gate, b, w_out, out if bias is None else out + bias)


def _through_affine(
    rest: Float[Tensor, "target d"], affine: Affine
) -> tuple[Float[Tensor, "d d_ff"], Float[Tensor, "target d_ff"]]:
    """The matrix in working precision, and the token-less part through it."""
    weight = affine.weight(rest)
    pushed = rest @ weight
    return weight, pushed if affine.bias is None else pushed + affine.bias


def through_feed_forward(
    x: Float[Tensor, "*part token d"], frozen: FrozenFeedForward
) -> Float[Tensor, "*part token d"]:
    """Every part through a frozen feed-forward, biases left out."""
    neurons = (x @ frozen.w_in) * frozen.a
    if frozen.w_gate is not None and frozen.b is not None:
        neurons = neurons + (x @ frozen.w_gate) * frozen.b
    return neurons @ frozen.w_out

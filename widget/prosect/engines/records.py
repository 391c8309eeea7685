"""What one run did to the residual stream, as records that the engines read.

Each record is the run-time side of one step of the anatomy; a :class:`State` marks where the stream
equals one of the model's hidden states. Everything is of one text: no batch axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from prosect.anatomy.vocabulary import Dense, Scores, Term


@dataclass(frozen=True)
class Normed:
    """A vector x a token became gain ⊙ (x − mean) / std + bias, std = sqrt(variance + epsilon).

    Without a mean (None) the variance is the mean square (RMSNorm). Gain and bias are None where the
    norm has none. ``layer`` is that of the block it is in, from 1; 0 before the first, None after
    the last.
    """

    name: str
    layer: int | None
    gain: Float[Tensor, "d"] | None
    bias: Float[Tensor, "d"] | None
    mean: Float[Tensor, "token 1"] | None
    variance: Float[Tensor, "token 1"]
    epsilon: float

    @property
    def std(self) -> Float[Tensor, "token 1"]:
        """The spread σ that the norm divides by."""
        return (self.variance + self.epsilon).sqrt()


@dataclass(frozen=True)
class Projected:
    """The whole stream x became x W + bias."""

    name: str
    weight: Float[Tensor, "d_in d_out"]
    bias: Float[Tensor, "d_out"] | None


@dataclass(frozen=True)
class Affine:
    """A linear map x W + b, W in the model's own precision."""

    weight: Float[Tensor, "d_in d_out"]
    bias: Float[Tensor, "d_out"] | None

    def __call__(self, x: Float[Tensor, "*axes d_in"]) -> Float[Tensor, "*axes d_out"]:
        """Apply it, in the precision of x."""
        out = x @ self.weight.to(x)
        return out if self.bias is None else out + self.bias


@dataclass(frozen=True)
class Embedded:
    """The embeddings that were summed, by name."""

    pieces: Mapping[str, Float[Tensor, "token d"]]


@dataclass(frozen=True)
class Attended:
    """How an attention sublayer came to its output: context W_O, context = α value for each head.

    ``value`` has the heads that the model stores, computed by ``value_map``; heads of the context
    share them in groups. ``read`` is what the queries were made of (and keys and values, but for
    cross-attention, which has ``source_key``); ``scores`` is the rule that made the scores, and
    ``tables`` the rotary positions. ``visible`` says which sources a target may attend to, where not
    all: those before it in a causal model, those near it within a sliding window.
    """

    context: Float[Tensor, "token d_heads"]
    weight: Float[Tensor, "d_heads d"]
    alpha: Float[Tensor, "head target source"]
    value: Float[Tensor, "kv_head source d_head"]
    value_map: Dense
    source_key: Float[Tensor, "kv_head source d_head"] | None
    read: Float[Tensor, "target d_in"]
    scores: Scores | None
    tables: tuple[Tensor, Tensor] | None
    value_bias: Float[Tensor, "kv_head d_head"] | None
    visible: Bool[Tensor, "target source"] | None = None


@dataclass(frozen=True)
class Fed:
    """How a feed-forward came to its output: neurons W_out, neurons = φ(u), or φ(u) ⊙ v if gated.

    u = x W_in + b_in and v = x W_gate + b_gate are what the run computed; the weights are there to
    push parts of x through. ``read`` is x, after the norm of the sublayer's input where it has one.
    """

    read: Float[Tensor, "token d_in"]
    neurons: Float[Tensor, "token d_ff"]
    weight: Float[Tensor, "d_ff d"]
    bias: Float[Tensor, "d"] | None
    u: Float[Tensor, "token d_ff"]
    inner: Affine
    activation: Callable[[Tensor], Tensor]
    v: Float[Tensor, "token d_ff"] | None
    gate: Affine | None


@dataclass(frozen=True)
class Wrote:
    """A part was added to the stream.

    Attributes
    ----------
    layer
        From 1; 0 is the embeddings.
    output
        What the sublayer computed, its bias included, before the norm ``after``.
    bias
        How much of it belongs to no token.
    before
        The norm of the sublayer's input, where it has one of its own.
    after
        The norm through which it went before it was added.
    detail
        How it came about.
    """

    name: str
    term: Term
    layer: int
    output: Float[Tensor, "token d"]
    bias: Float[Tensor, "d"] | None = None
    before: Normed | None = None
    after: Normed | None = None
    detail: Embedded | Attended | Fed | None = None


@dataclass(frozen=True)
class State:
    """Here the stream is ``hidden[layer]``, the state that the model itself reported."""

    layer: int
    hidden: Float[Tensor, "token d"]


Record = Wrote | Normed | Projected | State

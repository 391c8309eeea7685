"""What one run did to the residual stream, as records that the engines read.

Each record is the run-time side of one step of the anatomy; a :class:`State` marks where the stream
equals one of the model's hidden states. Everything is of one text: no batch axis.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from prosect.anatomy.vocabulary import Term


@dataclass(frozen=True)
class Wrote:
    """A part was added to the stream; ``bias`` is how much of it belongs to no token."""

    name: str
    term: Term
    output: Float[Tensor, "token d"]
    bias: Float[Tensor, "d"] | None = None


@dataclass(frozen=True)
class Normed:
    """The whole stream x became gain ⊙ (x − mean) / std + bias, std = sqrt(variance + epsilon)."""

    name: str
    gain: Float[Tensor, "d"]
    bias: Float[Tensor, "d"]
    mean: Float[Tensor, "token 1"]
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
class State:
    """Here the stream is ``hidden[layer]``, the state that the model itself reported."""

    layer: int
    hidden: Float[Tensor, "token d"]


Record = Wrote | Normed | Projected | State

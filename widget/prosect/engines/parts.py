"""The linear steps: with α, σ and the means of a run frozen, every step maps parts to parts.

A stack of parts always sums to the stream. What a step adds of its own (a norm's bias and mean, a
sublayer's bias) belongs to no part and is returned apart, for the caller to assign.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from prosect.anatomy.stream import Normed, Projected


def through_norm(
    parts: Float[Tensor, "*part token d"], norm: Normed
) -> tuple[Float[Tensor, "*part token d"], Float[Tensor, "token d"]]:
    """Scale every part by g/σ; the rest is b − g·m/σ (Mickus et al. 2022)."""
    scale = norm.gain / norm.std
    return parts * scale, norm.bias - scale * norm.mean


def through_projection(
    parts: Float[Tensor, "*part token d_in"], projection: Projected
) -> tuple[Float[Tensor, "*part token d_out"], Float[Tensor, "d_out"] | None]:
    """Map every part by W; the rest is the projection's bias."""
    return parts @ projection.weight, projection.bias

"""The linear steps: with α, σ and the means of a run frozen, every step maps parts to parts.

A stack of parts always sums to the stream. What a step adds of its own (a norm's bias and mean, a
sublayer's bias) belongs to no part and is returned apart, for the caller to assign.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.engines.records import Normed, Projected

Centring = Literal["bias", "each"]
"""Where the mean that a norm subtracts goes: to the bias term (Mickus et al. 2022), or each part
loses its own mean (Kobayashi et al. 2021). The sum is the same; in RMSNorm there is no mean."""


def through_norm(
    parts: Float[Tensor, "*part token d"],
    norm: Normed,
    centring: Centring = "bias",
    out: Tensor | None = None,
) -> Float[Tensor, "*part token d"]:
    """Scale every part by g/σ; if each is centred by itself, after subtracting its own mean.

    The result is written to ``out`` where that is given; it may be ``parts``.
    """
    if centring == "each" and norm.mean is not None:
        parts = parts - parts.mean(-1, keepdim=True)
    return torch.mul(parts, scale_of(norm), out=out)


def scale_of(norm: Normed) -> Float[Tensor, "token d"]:
    """g/σ of every token and dimension."""
    return 1 / norm.std if norm.gain is None else norm.gain / norm.std


def norm_mean(norm: Normed, centring: Centring = "bias") -> Float[Tensor, "token d"] | None:
    """−g·m/σ: the mean it subtracts, unless every part subtracts its own."""
    return None if norm.mean is None or centring == "each" else -norm.mean * scale_of(norm)


def through_projection(
    parts: Float[Tensor, "*part token d_in"], projection: Projected
) -> Float[Tensor, "*part token d_out"]:
    """Map every part by W; the projection's bias is the rest."""
    return parts @ projection.weight

"""Rotary positions (Su et al. 2021): each pair of a head's dimensions is turned by the position.

A turn is linear, so what it does to a query or key it does to a change of one.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def halves(
    x: Float[Tensor, "*axes token d_head"],
    cos: Float[Tensor, "token d_turned"],
    sin: Float[Tensor, "token d_turned"],
) -> Float[Tensor, "*axes token d_head"]:
    """Pair dimension i with i + d_turned/2 (LLaMA, GPT-NeoX); dimensions beyond d_turned stay."""
    turned, kept = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat([-second, first], dim=-1) * sin
    return torch.cat([turned, kept], dim=-1)


def neighbours(
    x: Float[Tensor, "*axes token d_head"],
    sin: Float[Tensor, "token d_pairs"],
    cos: Float[Tensor, "token d_pairs"],
) -> Float[Tensor, "*axes token d_head"]:
    """Pair dimension 2i with 2i + 1 (GPT-J, whose tables come in the other order)."""
    width = 2 * cos.shape[-1]
    turned, kept = x[..., :width], x[..., width:]
    even, odd = turned[..., ::2], turned[..., 1::2]
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)
    return torch.cat([turned, kept], dim=-1)

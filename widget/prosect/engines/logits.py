"""What the parts of a last hidden state add to the logit of one token, signed.

A linear head needs nothing frozen. The transform of a masked model's head is frozen like a layer: its
activation by the ratio θ, its norm by the mean and spread of the whole vector.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.engines.activation import ratio
from prosect.engines.records import Affine, HeadRecord, NormRule


def logit_parts(
    parts: Float[Tensor, "part d"], rest: Float[Tensor, "d"], head: HeadRecord, token: int
) -> tuple[Float[Tensor, "part"], Float[Tensor, ""]]:
    """The contribution of each part, and of the rest with every bias, to the logit of a token.

    Parameters
    ----------
    parts, rest
        Of one last hidden state; they sum to it.
    head
        The model's head.
    token
        Its index in the vocabulary.
    """
    if head.outlet is not None:
        parts, rest = _through(parts, rest, head.outlet)
    parts, rest = parts * head.scale, rest * head.scale
    if head.dense is not None and head.activation is not None:
        parts, rest = _through(parts, rest, head.dense)
        theta = ratio(head.activation, parts.sum(0) + rest)
        parts, rest = parts * theta, rest * theta
    if head.norm is not None:
        parts, rest = _through_norm(parts, rest, head.norm)
    column = head.decoder.weight.column(token, parts)
    biases = [bias[token].to(rest) for bias in (head.decoder.bias, head.bias) if bias is not None]
    return parts @ column, torch.stack([rest @ column, *biases]).sum()


def _through(parts: Tensor, rest: Tensor, affine: Affine) -> tuple[Tensor, Tensor]:
    return parts @ affine.weight(parts), affine(rest)


def _through_norm(parts: Tensor, rest: Tensor, norm: NormRule) -> tuple[Tensor, Tensor]:
    """A norm with the mean and spread of the whole; each part loses its own mean."""
    whole = parts.sum(0) + rest
    if norm.centred:
        whole = whole - whole.mean()
        parts, rest = parts - parts.mean(-1, keepdim=True), rest - rest.mean()
    scale = 1 / (whole.square().mean() + norm.epsilon).sqrt()
    scale = scale if norm.gain is None else norm.gain.to(parts) * scale
    parts, rest = parts * scale, rest * scale
    return parts, rest if norm.bias is None else rest + norm.bias.to(rest)

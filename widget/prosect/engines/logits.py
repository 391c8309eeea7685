"""On to the logits: what parts of a last hidden state add to one token's logit, signed.

A linear head passes parts on as they are. The transform of a masked model's head is frozen like a
layer: its activation by the ratio θ, its norm by the mean and spread that the whole has.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from prosect.anatomy.heads import Head
from prosect.anatomy.vocabulary import Dense, Norm
from prosect.engines.activation import ratio


def logit_parts(
    parts: Float[Tensor, "part d"], rest: Float[Tensor, "d"], head: Head, token: int
) -> tuple[Float[Tensor, "part"], Float[Tensor, ""]]:
    """What each part, and the rest with every bias, adds to the logit of a token.

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
        parts, rest = _normed(parts, rest, head.norm)
    weight = head.decoder.weight[:, token].detach().to(parts)
    found = parts @ weight, rest @ weight
    biases = [b for b in (head.decoder.bias, head.bias) if b is not None]
    return found[0], found[1] + sum(float(b.detach()[token]) for b in biases)


def _through(parts: Tensor, rest: Tensor, dense: Dense) -> tuple[Tensor, Tensor]:
    weight, bias = dense.weight.detach().to(parts), dense.bias
    pushed = rest @ weight
    return parts @ weight, pushed if bias is None else pushed + bias.detach().to(parts)


def _normed(parts: Tensor, rest: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    whole = parts.sum(0) + rest
    spread = (whole.var(correction=0) + norm.epsilon).sqrt()
    gain = 1.0 if norm.gain is None else norm.gain.detach().to(parts)
    parts = (parts - parts.mean(-1, keepdim=True)) / spread * gain
    rest = (rest - rest.mean()) / spread * gain
    return parts, rest if norm.bias is None else rest + norm.bias.detach().to(rest)

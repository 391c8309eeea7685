"""Value zeroing (Mohebbi et al. 2023): what happens to a layer's output when a token is silenced.

An intervention, not a decomposition: the values of one source token are set to zero in all heads of
one layer, the attention weights kept, and norms and activations computed anew. How far the output of
each target turns is a check on what the norms of the frozen parts say.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from prosect.engines.records import Fed, Normed, Wrote
from prosect.engines.scopes import BLOCK, Layer, attended_parts


def value_zeroing(layer: Layer) -> Float[Tensor, "target source"]:
    """1 − cos between each target's output and its output with the values of one source at zero."""
    first = layer.attention
    parts = attended_parts(first)
    n, d = layer.x.shape
    whole = normalize(_onward(first.output, layer), dim=-1)
    width = max(d, *(fed.u.shape[1] for fed in _fed(layer)))
    size = max(1, BLOCK // (n * width))
    rows = []
    for start in range(0, n, size):
        sources = slice(start, min(start + size, n))
        silenced = parts.directions[sources]  # [source, head, d]
        removed = torch.einsum("tsk,skd->std", parts.a[:, sources], silenced)
        changed = normalize(_onward(first.output - removed, layer), dim=-1)
        # |a − b|² / 2 of unit vectors is 1 − cos, and exact for small angles
        rows.append((changed - whole).square().sum(-1) / 2)
    return torch.cat(rows).T


def _fed(layer: Layer) -> list[Fed]:
    details = [record.detail for record in layer.records if isinstance(record, Wrote)]
    return [detail for detail in details if isinstance(detail, Fed)]


def _onward(
    attended: Float[Tensor, "*axes token d"], layer: Layer
) -> Float[Tensor, "*axes token d"]:
    """The layer's output from what its attention wrote; what attends to another text is kept."""
    first, *following = layer.attention, *layer.records[1:]
    x = layer.x + (attended if first.after is None else normed(attended, first.after))
    for record in following:
        if isinstance(record, Normed):
            x = normed(x, record)
        elif record.term == "source":
            x = x + (record.output if record.after is None else normed(record.output, record.after))
        else:
            read = layer.x if layer.parallel else x
            read = read if record.before is None else normed(read, record.before)
            out = fed_forward(read, record)
            x = x + (out if record.after is None else normed(out, record.after))
    return x


def normed(x: Float[Tensor, "*axes d"], norm: Normed) -> Float[Tensor, "*axes d"]:
    """The norm itself, with the mean and spread of x."""
    if norm.mean is not None:
        x = x - x.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + norm.epsilon).sqrt()
    x = x if norm.gain is None else x * norm.gain
    return x if norm.bias is None else x + norm.bias


def fed_forward(x: Float[Tensor, "*axes d"], wrote: Wrote) -> Float[Tensor, "*axes d"]:
    """The feed-forward itself."""
    fed = wrote.detail
    assert isinstance(fed, Fed)
    neurons = fed.activation(fed.inner(x))
    if fed.gate is not None:
        neurons = neurons * fed.gate(x)
    out = neurons @ fed.weight.to(x)
    return out if fed.bias is None else out + fed.bias

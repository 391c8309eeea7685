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

from prosect.engines.linear import rest_through_norm
from prosect.engines.records import AttentionRecord, FeedForwardRecord, LayerRecord, NormRule
from prosect.engines.scopes import BLOCK, Combined, parts_of_attention


def value_zeroing(layer: LayerRecord) -> Float[Tensor, "target source"]:
    """1 − cos between each target's output and its output with the values of one source at zero."""
    parts = parts_of_attention(layer.attention)
    n, d = layer.x.shape
    whole = normalize(output_of(layer.attention.output, layer), dim=-1)
    size = max(1, BLOCK // (n * max(d, layer.feed_forward.u.shape[1])))
    rows = []
    for start in range(0, n, size):
        sources = slice(start, min(start + size, n))
        changed = normalize(_without(parts, layer, sources), dim=-1)
        # |a − b|² / 2 of unit vectors is 1 − cos, and exact for small angles
        rows.append((changed - whole).square().sum(-1) / 2)
    return torch.cat(rows).T


def silenced(layer: LayerRecord, source: int, kv_head: int) -> Float[Tensor, "target d"]:
    """The layer's output with one value vector at zero, in all heads that share it."""
    group = layer.attention.heads // layer.attention.kv_heads
    heads = slice(kv_head * group, (kv_head + 1) * group)
    parts = parts_of_attention(layer.attention)
    return _without(parts, layer, slice(source, source + 1), heads)[0]


def strongest(layer: LayerRecord) -> tuple[int, int]:
    """The source and the head of the values that attention takes most from, by length."""
    parts = parts_of_attention(layer.attention)
    taken = parts.a.sum(0) * parts.directions.norm(dim=-1)
    by_value = taken.unflatten(1, (layer.attention.kv_heads, -1)).sum(-1)
    source, kv_head = divmod(int(by_value.argmax()), by_value.shape[1])
    return source, kv_head


def _without(
    parts: Combined, layer: LayerRecord, sources: slice, heads: slice = slice(None)
) -> Float[Tensor, "source target d"]:
    """The layer's output without what some heads take from each of some sources."""
    removed = torch.einsum(
        "tsk,skd->std", parts.a[:, sources, heads], parts.directions[sources, heads]
    )
    return output_of(layer.attention.output - removed, layer)


def output_of(
    attended: Float[Tensor, "*axes token d"], layer: LayerRecord
) -> Float[Tensor, "*axes token d"]:
    """The layer's output from what its attention wrote; what attends to another text is kept."""
    after = layer.attention.after
    x = layer.x + (attended if after is None else normed(attended, after.rule))
    for record in layer.following:
        match record:
            case AttentionRecord(output=written, after=after):
                x = x + (written if after is None else rest_through_norm(written, after))
            case FeedForwardRecord():
                read = layer.x if record.parallel else x
                read = read if record.before is None else normed(read, record.before.rule)
                out = feed_forward(read, record)
                x = x + (out if record.after is None else normed(out, record.after.rule))
            case _:
                x = normed(x, record.rule)
    return x


def normed(x: Float[Tensor, "*axes d"], rule: NormRule) -> Float[Tensor, "*axes d"]:
    """The norm itself, with the mean and spread of x."""
    if rule.centred:
        x = x - x.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + rule.epsilon).sqrt()
    x = x if rule.gain is None else x * rule.gain
    return x if rule.bias is None else x + rule.bias


def feed_forward(
    x: Float[Tensor, "*axes d"], record: FeedForwardRecord
) -> Float[Tensor, "*axes d"]:
    """The feed-forward itself."""
    neurons = record.activation(record.inner(x))
    if record.gate is not None:
        neurons = neurons * record.gate(x)
    return record.output_map(neurons)

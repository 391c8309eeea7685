"""ModernBERT (Warner et al. 2024): pre-norm encoder, gated, local and global attention."""

from __future__ import annotations

from typing import Any

from prosect.anatomy import rotary
from prosect.anatomy.vocabulary import (
    Anatomy,
    Attention,
    Block,
    Dense,
    Embedding,
    FeedForward,
    Head,
    Norm,
    Scores,
    Words,
    fused,
)


def anatomy(base: Any) -> Anatomy:
    """Describe ModernBERT."""
    words = base.embeddings.tok_embeddings
    heads = base.config.num_attention_heads
    return Anatomy(
        family="ModernBERT",
        base=base,
        words=Words(words),
        embeddings=(Embedding("word", words),),
        stem=(Norm(base.embeddings.norm),),
        blocks=tuple(_block(layer, heads, base.config.intermediate_size) for layer in base.layers),
        tail=(Norm(base.final_norm),),
        positions=base.config.max_position_embeddings,
    )


def head(model: Any) -> Head | None:
    """The head of a masked model: a transform, then a map to the vocabulary."""
    if not hasattr(model, "decoder"):
        return None
    own = model.head
    return Head(Dense(model.decoder), Dense(own.dense), own.act, Norm(own.norm))


def _block(layer: Any, heads: int, d_ff: int) -> Block:
    own, mlp = layer.attn, layer.mlp
    query, key, value = fused(own.Wqkv, heads * own.head_dim)
    first = hasattr(
        layer.attn_norm, "weight"
    )  # the first layer has none: the embeddings are normed
    attention = Attention(
        own,
        value,
        Dense(own.Wo),
        heads,
        heads,
        Scores(query, key, own.head_dim**-0.5, turn=rotary.halves),
        before=Norm(layer.attn_norm) if first else None,
    )
    feed_forward = FeedForward(
        Dense(mlp.Wi, slice(0, d_ff)),
        mlp.act,
        Dense(mlp.Wo),
        gate=Dense(mlp.Wi, slice(d_ff, 2 * d_ff)),
        before=Norm(layer.mlp_norm),
    )
    return Block(layer, (attention, feed_forward))

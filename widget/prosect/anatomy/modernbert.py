"""ModernBERT (Warner et al. 2024): pre-norm encoder, gated, local and global attention."""

from __future__ import annotations

from typing import Any

from prosect.anatomy.vocabulary import (
    Anatomy,
    Attention,
    Block,
    Dense,
    Embedding,
    FeedForward,
    Norm,
)


def anatomy(base: Any) -> Anatomy:
    """Describe ModernBERT."""
    words = base.embeddings.tok_embeddings
    heads = base.config.num_attention_heads
    return Anatomy(
        family="ModernBERT",
        base=base,
        words=words,
        embeddings=(Embedding("word", words),),
        stem=(Norm(base.embeddings.norm),),
        blocks=tuple(_block(layer, heads) for layer in base.layers),
        tail=(Norm(base.final_norm),),
        positions=base.config.max_position_embeddings,
    )


def _block(layer: Any, heads: int) -> Block:
    own = layer.attn
    d = heads * own.head_dim
    first = hasattr(
        layer.attn_norm, "weight"
    )  # the first layer has none: the embeddings are normed
    attention = Attention(
        own,
        Dense(own.Wqkv, slice(2 * d, 3 * d)),
        Dense(own.Wo),
        heads,
        heads,
        before=Norm(layer.attn_norm) if first else None,
    )
    feed_forward = FeedForward(Dense(layer.mlp.Wo), before=Norm(layer.mlp_norm))
    return Block(layer, (attention, feed_forward))

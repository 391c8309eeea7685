"""DistilBERT (Sanh et al. 2019): post-norm encoder without token types."""

from __future__ import annotations

from typing import Any

from prosect.anatomy import bert
from prosect.anatomy.vocabulary import (
    Anatomy,
    Attention,
    Block,
    Dense,
    FeedForward,
    Norm,
    Scores,
)


def anatomy(base: Any) -> Anatomy:
    """Describe DistilBERT."""
    heads = base.config.n_heads
    return Anatomy(
        family="DistilBERT",
        base=base,
        words=base.embeddings.word_embeddings,
        embeddings=bert.embeddings(base.embeddings),
        stem=(Norm(base.embeddings.LayerNorm),),
        blocks=tuple(_block(layer, heads) for layer in base.transformer.layer),
        positions=base.config.max_position_embeddings,
    )


def _block(layer: Any, heads: int) -> Block:
    own = layer.attention
    scores = Scores(Dense(own.q_lin), Dense(own.k_lin), own.scaling)
    attention = Attention(own, Dense(own.v_lin), Dense(own.out_lin), heads, heads, scores)
    feed_forward = FeedForward(Dense(layer.ffn.lin1), layer.ffn.activation, Dense(layer.ffn.lin2))
    return Block(
        layer,
        (attention, Norm(layer.sa_layer_norm), feed_forward, Norm(layer.output_layer_norm)),
    )

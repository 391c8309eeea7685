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
    Head,
    Norm,
    Scores,
    Words,
)


def anatomy(base: Any) -> Anatomy:
    """Describe DistilBERT."""
    heads = base.config.n_heads
    return Anatomy(
        family="DistilBERT",
        base=base,
        words=Words(base.embeddings.word_embeddings),
        embeddings=bert.embeddings(base.embeddings),
        stem=(Norm(base.embeddings.LayerNorm),),
        blocks=tuple(_block(layer, heads) for layer in base.transformer.layer),
        positions=base.config.max_position_embeddings,
    )


def head(model: Any) -> Head | None:
    """The head of a masked model: a transform, then a map to the vocabulary."""
    if not hasattr(model, "vocab_projector"):
        return None
    return Head(
        Dense(model.vocab_projector),
        Dense(model.vocab_transform),
        model.activation,
        Norm(model.vocab_layer_norm),
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

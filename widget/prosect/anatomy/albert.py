"""ALBERT (Lan et al. 2020): post-norm encoder that uses the same modules in many layers."""

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
    Projection,
    Scores,
    Words,
)


def anatomy(base: Any) -> Anatomy:
    """Describe ALBERT."""
    config, encoder = base.config, base.encoder
    groups = encoder.albert_layer_groups
    per_group = config.num_hidden_layers / config.num_hidden_groups
    layers = [
        layer
        for number in range(config.num_hidden_layers)
        for layer in groups[int(number / per_group)].albert_layers
    ]
    return Anatomy(
        family="ALBERT",
        base=base,
        words=Words(base.embeddings.word_embeddings),
        embeddings=bert.embeddings(base.embeddings),
        stem=(
            Norm(base.embeddings.LayerNorm),
            Projection(Dense(encoder.embedding_hidden_mapping_in)),
        ),
        blocks=tuple(_block(layer, config.num_attention_heads) for layer in layers),
        positions=config.max_position_embeddings,
    )


def head(model: Any) -> Head | None:
    """The head of a masked model: a transform, then a map to the vocabulary."""
    own = getattr(model, "predictions", None)
    if own is None:
        return None
    return Head(Dense(own.decoder), Dense(own.dense), own.activation, Norm(own.LayerNorm))


def _block(layer: Any, heads: int) -> Block:
    own = layer.attention
    scores = Scores(Dense(own.query), Dense(own.key), own.scaling)
    attention = Attention(own, Dense(own.value), Dense(own.dense), heads, heads, scores)
    feed_forward = FeedForward(Dense(layer.ffn), layer.activation, Dense(layer.ffn_output))
    return Block(
        layer,
        (attention, Norm(own.LayerNorm), feed_forward, Norm(layer.full_layer_layer_norm)),
    )

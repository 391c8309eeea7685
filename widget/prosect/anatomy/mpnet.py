"""MPNet (Song et al. 2020): post-norm encoder with relative positions of its own making."""

from __future__ import annotations

from typing import Any

from prosect.anatomy import bert
from prosect.anatomy.vocabulary import (
    Anatomy,
    Attention,
    Block,
    Dense,
    Norm,
    Scores,
    Words,
)


def anatomy(base: Any) -> Anatomy:
    """Describe MPNet."""
    heads = base.config.num_attention_heads
    return Anatomy(
        family="MPNet",
        base=base,
        words=Words(base.embeddings.word_embeddings),
        embeddings=bert.embeddings(base.embeddings),
        stem=(Norm(base.embeddings.LayerNorm),),
        blocks=tuple(_block(layer, heads) for layer in base.encoder.layer),
        positions=base.config.max_position_embeddings - base.embeddings.padding_idx - 1,
    )


def _block(layer: Any, heads: int) -> Block:
    own = layer.attention.attn
    scores = Scores(Dense(own.q), Dense(own.k), own.attention_head_size**-0.5)
    value, output = Dense(own.v), Dense(own.o)
    attention = Attention(own, value, output, heads, heads, scores, registry=False)
    feed_forward = bert.feed_forward_of(layer)
    norms = Norm(layer.attention.LayerNorm), Norm(layer.output.LayerNorm)
    return Block(layer, (attention, norms[0], feed_forward, norms[1]))

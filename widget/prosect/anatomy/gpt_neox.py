"""GPT-NeoX and Pythia (Black et al. 2022): rotary positions, usually parallel sublayers."""

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
    Norm,
    Scores,
    Words,
    interleaved,
)


def anatomy(base: Any) -> Anatomy:
    """Describe GPT-NeoX, its sublayers parallel or one after the other: the stream is a sum."""
    heads = base.config.num_attention_heads
    return Anatomy(
        family="GPT-NeoX",
        base=base,
        words=Words(base.embed_in),
        embeddings=(Embedding("word", base.embed_in),),
        blocks=tuple(_block(layer, heads) for layer in base.layers),
        tail=(Norm(base.final_layer_norm),),
        positions=base.config.max_position_embeddings,
        causal=True,
    )


def _block(layer: Any, heads: int) -> Block:
    own, mlp = layer.attention, layer.mlp
    query, key, value = interleaved(own.query_key_value, heads, own.head_size)
    attention = Attention(
        own,
        value,
        Dense(own.dense),
        heads,
        heads,
        Scores(query, key, own.scaling, turn=rotary.halves),
        before=Norm(layer.input_layernorm),
    )
    feed_forward = FeedForward(
        Dense(mlp.dense_h_to_4h),
        mlp.act,
        Dense(mlp.dense_4h_to_h),
        before=Norm(layer.post_attention_layernorm),
    )
    return Block(layer, (attention, feed_forward), layer.use_parallel_residual)

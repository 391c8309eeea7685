"""Phi (Li et al. 2023): parallel sublayers behind one norm, rotary positions in part."""

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
)


def anatomy(base: Any) -> Anatomy:
    """Describe Phi."""
    config = base.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    return Anatomy(
        family="Phi",
        base=base,
        words=Words(base.embed_tokens),
        embeddings=(Embedding("word", base.embed_tokens),),
        blocks=tuple(_block(layer, heads, kv_heads) for layer in base.layers),
        tail=(Norm(base.final_layernorm),),
        positions=config.max_position_embeddings,
        causal=True,
    )


def _block(layer: Any, heads: int, kv_heads: int) -> Block:
    own, norm = layer.self_attn, Norm(layer.input_layernorm)
    scores = Scores(
        Dense(own.q_proj),
        Dense(own.k_proj),
        own.scaling,
        query_norm=Norm(own.q_layernorm) if own.qk_layernorm else None,
        key_norm=Norm(own.k_layernorm) if own.qk_layernorm else None,
        turn=rotary.halves,
    )
    value, output = Dense(own.v_proj), Dense(own.dense)
    attention = Attention(own, value, output, heads, kv_heads, scores, before=norm)
    mlp = layer.mlp
    feed_forward = FeedForward(Dense(mlp.fc1), mlp.activation_fn, Dense(mlp.fc2), before=norm)
    return Block(layer, (attention, feed_forward), parallel=True)

"""Phi (Li et al. 2023): parallel sublayers behind one norm, rotary positions in part."""

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
    """Describe Phi."""
    config = base.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    return Anatomy(
        family="Phi",
        base=base,
        words=base.embed_tokens,
        embeddings=(Embedding("word", base.embed_tokens),),
        blocks=tuple(_block(layer, heads, kv_heads) for layer in base.layers),
        tail=(Norm(base.final_layernorm),),
        positions=config.max_position_embeddings,
        causal=True,
    )


def _block(layer: Any, heads: int, kv_heads: int) -> Block:
    own, norm = layer.self_attn, Norm(layer.input_layernorm)
    attention = Attention(own, Dense(own.v_proj), Dense(own.dense), heads, kv_heads, before=norm)
    return Block(layer, (attention, FeedForward(Dense(layer.mlp.fc2), before=norm)))

"""Gemma 2 and 3 (2024, 2025): norms before and after every sublayer, gains of 1 + w."""

from __future__ import annotations

from typing import Any

from prosect.anatomy import llama
from prosect.anatomy.vocabulary import (
    Anatomy,
    Attention,
    Block,
    Dense,
    FeedForward,
    Norm,
)

FAMILIES = {"gemma2": "Gemma 2", "gemma3_text": "Gemma 3"}


def anatomy(base: Any) -> Anatomy:
    """Describe Gemma 2 and the text model of Gemma 3."""
    return llama.decoder(base, family=FAMILIES[base.config.model_type], block=_block, norm=_norm)


def _norm(module: Any) -> Norm:
    return Norm(module, "rms", offset=1.0)


def _block(layer: Any, heads: int, kv_heads: int) -> Block:
    own = layer.self_attn
    attention = Attention(
        own,
        Dense(own.v_proj),
        Dense(own.o_proj),
        heads,
        kv_heads,
        before=_norm(layer.input_layernorm),
        after=_norm(layer.post_attention_layernorm),
    )
    feed_forward = FeedForward(
        Dense(layer.mlp.down_proj),
        before=_norm(layer.pre_feedforward_layernorm),
        after=_norm(layer.post_feedforward_layernorm),
    )
    return Block(layer, (attention, feed_forward))

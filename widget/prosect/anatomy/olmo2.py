"""OLMo 2 (2025): RMSNorm on what each sublayer writes, before it joins the stream."""

from __future__ import annotations

from typing import Any

from prosect.anatomy import llama
from prosect.anatomy.vocabulary import (
    Anatomy,
    Attention,
    Block,
    Dense,
)


def anatomy(base: Any) -> Anatomy:
    """Describe OLMo 2."""
    return llama.decoder(base, family="OLMo 2", block=_block, norm=llama.rms)


def _block(layer: Any, heads: int, kv_heads: int) -> Block:
    own = layer.self_attn
    attention = Attention(
        own,
        Dense(own.v_proj),
        Dense(own.o_proj),
        heads,
        kv_heads,
        llama.scores(own, llama.rms),
        after=llama.rms(layer.post_attention_layernorm),
    )
    feed_forward = llama.gated(layer.mlp, after=llama.rms(layer.post_feedforward_layernorm))
    return Block(layer, (attention, feed_forward))

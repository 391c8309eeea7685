"""LLaMA (Touvron et al. 2023) and its kin: pre-norm, RMSNorm, gated, shared key/value heads."""

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

FAMILIES = {
    "llama": "LLaMA",
    "mistral": "Mistral",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "smollm3": "SmolLM3",
}


def anatomy(base: Any) -> Anatomy:
    """Describe LLaMA, Mistral, Qwen2, Qwen3, SmolLM."""
    return decoder(base, family=FAMILIES[base.config.model_type], block=_block, norm=rms)


def decoder(base: Any, *, family: str, block: Any, norm: Any) -> Anatomy:
    """Describe any decoder with LLaMA's frame: what differs is a layer, and the kind of norm."""
    config = base.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    return Anatomy(
        family=family,
        base=base,
        words=Words(base.embed_tokens),
        embeddings=(Embedding("word", base.embed_tokens),),
        blocks=tuple(block(layer, heads, kv_heads) for layer in base.layers),
        tail=(norm(base.norm),),
        positions=config.max_position_embeddings,
        causal=not getattr(config, "use_bidirectional_attention", False),  # Gemma 3 of embeddings
    )


def rms(module: Any) -> Norm:
    """RMSNorm."""
    return Norm(module, "rms")


def scores(own: Any, norm: Any) -> Scores:
    """The scores with LLaMA's names; some of its kin norm query and key, or cap the scores."""
    normed = getattr(own, "q_norm", None) is not None
    turns = bool(getattr(own, "use_rope", True))
    return Scores(
        Dense(own.q_proj),
        Dense(own.k_proj),
        own.scaling,
        query_norm=norm(own.q_norm) if normed else None,
        key_norm=norm(own.k_norm) if normed else None,
        turn=rotary.halves if turns else None,
        softcap=getattr(own, "attn_logit_softcapping", None),
    )


def gated(mlp: Any, before: Norm | None = None, after: Norm | None = None) -> FeedForward:
    """The gated feed-forward with LLaMA's names."""
    return FeedForward(
        Dense(mlp.gate_proj),
        mlp.act_fn,
        Dense(mlp.down_proj),
        gate=Dense(mlp.up_proj),
        before=before,
        after=after,
    )


def _block(layer: Any, heads: int, kv_heads: int) -> Block:
    own = layer.self_attn
    attention = Attention(
        own,
        Dense(own.v_proj),
        Dense(own.o_proj),
        heads,
        kv_heads,
        scores(own, rms),
        before=rms(layer.input_layernorm),
    )
    feed_forward = gated(layer.mlp, before=rms(layer.post_attention_layernorm))
    return Block(layer, (attention, feed_forward))

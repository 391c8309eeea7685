"""GPT-2 (Radford et al. 2019): pre-norm decoder with query, key and value in one projection."""

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
    Scores,
    Words,
    fused,
)


def anatomy(base: Any) -> Anatomy:
    """Describe GPT-2."""
    heads = base.config.n_head
    return Anatomy(
        family="GPT-2",
        base=base,
        words=Words(base.wte),
        embeddings=(Embedding("word", base.wte), Embedding("position", base.wpe)),
        blocks=tuple(_block(layer, heads) for layer in base.h),
        tail=(Norm(base.ln_f),),
        positions=base.config.n_positions,
        causal=True,
    )


def _block(layer: Any, heads: int) -> Block:
    own, mlp = layer.attn, layer.mlp
    query, key, value = fused(own.c_attn, own.embed_dim)
    scores = Scores(query, key, own.scaling)
    output, before = Dense(own.c_proj), Norm(layer.ln_1)
    attention = Attention(own, value, output, heads, heads, scores, before=before)
    feed_forward = FeedForward(Dense(mlp.c_fc), mlp.act, Dense(mlp.c_proj), before=Norm(layer.ln_2))
    return Block(layer, (attention, feed_forward))

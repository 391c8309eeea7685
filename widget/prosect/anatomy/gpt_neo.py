"""GPT-Neo (Black et al. 2021): GPT-2 with local attention in every other layer."""

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
)


def anatomy(base: Any) -> Anatomy:
    """Describe GPT-Neo."""
    heads = base.config.num_heads
    return Anatomy(
        family="GPT-Neo",
        base=base,
        words=Words(base.wte),
        embeddings=(Embedding("word", base.wte), Embedding("position", base.wpe)),
        blocks=tuple(_block(layer, heads) for layer in base.h),
        tail=(Norm(base.ln_f),),
        positions=base.config.max_position_embeddings,
        causal=True,
    )


def _block(layer: Any, heads: int) -> Block:
    own, mlp = layer.attn.attention, layer.mlp
    attention = Attention(
        own,
        Dense(own.v_proj),
        Dense(own.out_proj),
        heads,
        heads,
        Scores(Dense(own.q_proj), Dense(own.k_proj), 1.0),
        before=Norm(layer.ln_1),
        registry=False,
        visible=lambda n: own.bias[0, 0, :n, :n],
    )
    feed_forward = FeedForward(Dense(mlp.c_fc), mlp.act, Dense(mlp.c_proj), before=Norm(layer.ln_2))
    return Block(layer, (attention, feed_forward))

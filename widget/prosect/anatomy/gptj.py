"""GPT-J (Wang & Komatsuzaki 2021): parallel sublayers behind one norm."""

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
    """Describe GPT-J."""
    heads = base.config.n_head
    return Anatomy(
        family="GPT-J",
        base=base,
        words=base.wte,
        embeddings=(Embedding("word", base.wte),),
        blocks=tuple(_block(layer, heads) for layer in base.h),
        tail=(Norm(base.ln_f),),
        positions=base.config.n_positions,
        causal=True,
    )


def _block(layer: Any, heads: int) -> Block:
    own, norm = layer.attn, Norm(layer.ln_1)
    attention = Attention(own, Dense(own.v_proj), Dense(own.out_proj), heads, heads, before=norm)
    return Block(layer, (attention, FeedForward(Dense(layer.mlp.fc_out), before=norm)))

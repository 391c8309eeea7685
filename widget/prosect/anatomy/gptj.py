"""GPT-J (Wang & Komatsuzaki 2021): parallel sublayers behind one norm."""

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
    """Describe GPT-J."""
    heads = base.config.n_head
    return Anatomy(
        family="GPT-J",
        base=base,
        words=Words(base.wte),
        embeddings=(Embedding("word", base.wte),),
        blocks=tuple(_block(layer, heads) for layer in base.h),
        tail=(Norm(base.ln_f),),
        positions=base.config.n_positions,
        causal=True,
    )


def _block(layer: Any, heads: int) -> Block:
    own, norm = layer.attn, Norm(layer.ln_1)
    turn = rotary.neighbours
    scores = Scores(Dense(own.q_proj), Dense(own.k_proj), own.scaling, turn=turn)
    value, output = Dense(own.v_proj), Dense(own.out_proj)
    attention = Attention(own, value, output, heads, heads, scores, before=norm)
    mlp = layer.mlp
    feed_forward = FeedForward(Dense(mlp.fc_in), mlp.act, Dense(mlp.fc_out), before=norm)
    return Block(layer, (attention, feed_forward), parallel=True)

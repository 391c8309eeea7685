"""GPT-2 (Radford et al. 2019): pre-norm decoder with query, key and value in one projection."""

from __future__ import annotations

from typing import Any

from prosect.anatomy.vocabulary import Anatomy, Attention, Block, Dense, FeedForward, Norm


def anatomy(base: Any) -> Anatomy:
    """Describe GPT-2."""
    return Anatomy(
        family="GPT-2",
        base=base,
        words=base.wte,
        embedding_norm=None,
        embedding_projection=None,
        blocks=tuple(_block(layer) for layer in base.h),
        final_norm=Norm(base.ln_f),
        heads=base.config.n_head,
        positions=base.config.n_positions,
        causal=True,
    )


def _block(layer: Any) -> Block:
    attention, d = layer.attn, layer.attn.embed_dim
    return Block(
        module=layer,
        order="pre",
        attention=Attention(
            core=attention,
            writes=attention.c_proj,
            value=Dense(attention.c_attn, columns=slice(2 * d, 3 * d)),
            output=Dense(attention.c_proj),
        ),
        attention_norm=Norm(layer.ln_1),
        feed_forward=FeedForward(writes=layer.mlp.c_proj, output=Dense(layer.mlp.c_proj)),
        feed_forward_norm=Norm(layer.ln_2),
    )

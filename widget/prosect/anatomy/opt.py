"""OPT (Zhang et al. 2022): pre-norm decoder; the 350M model is post-norm and narrow at its ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prosect.anatomy.vocabulary import (
    Anatomy,
    Attention,
    Block,
    Dense,
    Embedding,
    FeedForward,
    Head,
    Norm,
    Scores,
    Words,
    plain_head,
)


def anatomy(base: Any) -> Anatomy:
    """Describe OPT."""
    decoder = base.decoder
    pre = base.config.do_layer_norm_before
    heads = base.config.num_attention_heads
    return Anatomy(
        family="OPT",
        base=decoder,  # what the model with a head calls: not what is around it
        words=Words(decoder.embed_tokens),
        embeddings=(
            Embedding("word", decoder.project_in or decoder.embed_tokens),
            Embedding("position", decoder.embed_positions),
        ),
        blocks=tuple(_block(layer, heads, pre) for layer in decoder.layers),
        tail=() if decoder.final_layer_norm is None else (Norm(decoder.final_layer_norm),),
        outlet=decoder.project_out,
        positions=base.config.max_position_embeddings,
        causal=True,
    )


def head(model: Any) -> Head | None:
    """The head; the narrow model projects the hidden state first."""
    own, outlet = plain_head(model), model.base_model.decoder.project_out
    return own if own is None or outlet is None else replace(own, outlet=Dense(outlet))


def _block(layer: Any, heads: int, pre: bool) -> Block:
    own = layer.self_attn
    norms = Norm(layer.self_attn_layer_norm), Norm(layer.final_layer_norm)
    value, output = Dense(own.v_proj), Dense(own.out_proj)
    feed = Dense(layer.fc1), layer.activation_fn, Dense(layer.fc2)
    scores = Scores(Dense(own.q_proj), Dense(own.k_proj), own.scaling)
    if pre:
        attention = Attention(own, value, output, heads, heads, scores, before=norms[0])
        return Block(layer, (attention, FeedForward(*feed, before=norms[1])))
    attention = Attention(own, value, output, heads, heads, scores)
    return Block(layer, (attention, norms[0], FeedForward(*feed), norms[1]))

"""BART (Lewis et al. 2020) and Marian: post-norm encoder and decoder."""

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


def encoder(model: Any) -> Anatomy:
    """Describe the encoder."""
    base = model.get_encoder()
    return _stack(base, "encoder", base.config.encoder_attention_heads)


def decoder(model: Any) -> Anatomy:
    """Describe the decoder, its attention to the source included."""
    base = model.get_decoder()
    return _stack(base, "decoder", base.config.decoder_attention_heads)


def head(model: Any) -> Head | None:
    """The head, with a bias of its own."""
    own = plain_head(model)
    return None if own is None else replace(own, bias=model.final_logits_bias[0])


def _stack(base: Any, side: str, heads: int) -> Anatomy:
    norm = getattr(base, "layernorm_embedding", None)  # Marian has none
    name = {"marian": "Marian"}.get(base.config.model_type, "BART")
    scale = 1.0 if hasattr(base.embed_tokens, "embed_scale") else getattr(base, "embed_scale", 1.0)
    return Anatomy(
        family=f"{name} {side}",
        base=base,
        words=Words(base.embed_tokens),
        embeddings=(
            Embedding("word", base.embed_tokens, scale),
            Embedding("position", base.embed_positions),
        ),
        stem=() if norm is None else (Norm(norm),),
        blocks=tuple(_block(layer, heads) for layer in base.layers),
        positions=base.config.max_position_embeddings,
        causal=side == "decoder",
    )


def _block(layer: Any, heads: int) -> Block:
    cross = getattr(layer, "encoder_attn", None)
    source = ()
    if cross is not None:
        source = (_attention(cross, heads, "source"), Norm(layer.encoder_attn_layer_norm))
    return Block(
        layer,
        (
            _attention(layer.self_attn, heads, "attention"),
            Norm(layer.self_attn_layer_norm),
            *source,
            FeedForward(Dense(layer.fc1), layer.activation_fn, Dense(layer.fc2)),
            Norm(layer.final_layer_norm),
        ),
    )


def _attention(own: Any, heads: int, term: Any) -> Attention:
    scores = Scores(Dense(own.q_proj), Dense(own.k_proj), own.scaling)
    value, output = Dense(own.v_proj), Dense(own.out_proj)
    return Attention(own, value, output, heads, heads, scores, term=term)

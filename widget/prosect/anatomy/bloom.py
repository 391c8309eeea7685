"""BLOOM (Le Scao et al. 2022): normed embeddings, ALiBi instead of positions."""

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
    interleaved,
    looking_back,
)
from prosect.errors import UnsupportedModelError


def anatomy(base: Any) -> Anatomy:
    """Describe BLOOM.

    Raises
    ------
    UnsupportedModelError
        For the variant whose residual stream is taken after the norms.
    """
    config = base.config
    if config.apply_residual_connection_post_layernorm:
        raise UnsupportedModelError(
            "This BLOOM takes its residual stream after the norms, which is not supported: "
            "use a model with apply_residual_connection_post_layernorm=False."
        )
    return Anatomy(
        family="BLOOM",
        base=base,
        words=Words(base.word_embeddings),
        embeddings=(Embedding("word", base.word_embeddings),),
        stem=(Norm(base.word_embeddings_layernorm),),
        blocks=tuple(_block(layer, config.n_head) for layer in base.h),
        tail=(Norm(base.ln_f),),
        causal=True,
    )


def _block(layer: Any, heads: int) -> Block:
    own, mlp = layer.self_attention, layer.mlp
    query, key, value = interleaved(own.query_key_value, heads, own.head_dim)
    attention = Attention(
        own,
        value,
        Dense(own.dense),
        heads,
        heads,
        Scores(query, key, own.inv_norm_factor),
        before=Norm(layer.input_layernorm),
        registry=False,
        visible=looking_back,
    )
    feed_forward = FeedForward(
        Dense(mlp.dense_h_to_4h),
        mlp.gelu_impl,
        Dense(mlp.dense_4h_to_h),
        before=Norm(layer.post_attention_layernorm),
    )
    return Block(layer, (attention, feed_forward))

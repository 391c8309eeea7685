"""DeBERTa-v2 and v3 (He et al. 2021): BERT's layers with disentangled attention."""

from __future__ import annotations

from typing import Any

from prosect.anatomy import bert
from prosect.anatomy.vocabulary import (
    Anatomy,
    Attention,
    Block,
    Dense,
    Norm,
    Projection,
    Words,
)
from prosect.errors import UnsupportedModelError


def anatomy(base: Any) -> Anatomy:
    """Describe DeBERTa-v2 and v3.

    Raises
    ------
    UnsupportedModelError
        For the largest models of version 2, whose first layer adds a convolution over tokens.
    """
    config, embeddings = base.config, base.embeddings
    if base.encoder.conv is not None:
        raise UnsupportedModelError(
            "This DeBERTa adds a convolution to its first layer, which belongs to no term: "
            "use a DeBERTa-v3 model, or one with conv_kernel_size=0."
        )
    projected = () if embeddings.embed_proj is None else (Projection(Dense(embeddings.embed_proj)),)
    return Anatomy(
        family="DeBERTa",
        base=base,
        words=Words(embeddings.word_embeddings),
        embeddings=bert.embeddings(embeddings),
        stem=(*projected, Norm(embeddings.LayerNorm)),
        blocks=tuple(_block(layer, config.num_attention_heads) for layer in base.encoder.layer),
        # relative positions reach any distance; only absolute ones end
        positions=config.max_position_embeddings if embeddings.position_embeddings else None,
    )


def _block(layer: Any, heads: int) -> Block:
    own, written = layer.attention.self, layer.attention.output
    value, output = Dense(own.value_proj), Dense(written.dense)
    attention = Attention(own, value, output, heads, heads, registry=False)
    feed_forward = bert.feed_forward_of(layer)
    return Block(
        layer, (attention, Norm(written.LayerNorm), feed_forward, Norm(layer.output.LayerNorm))
    )

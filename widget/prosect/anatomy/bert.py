"""BERT (Devlin et al. 2019): post-norm encoder; RoBERTa and ELECTRA have the same layers."""

from __future__ import annotations

from typing import Any

from torch import nn

from prosect.anatomy.vocabulary import (
    Anatomy,
    Attention,
    Block,
    Dense,
    FeedForward,
    Norm,
    Projection,
)


def anatomy(base: Any) -> Anatomy:
    """Describe BERT."""
    return encoder(base, family="BERT", positions=base.config.max_position_embeddings)


def encoder(
    base: Any, *, family: str, positions: int, projection: nn.Linear | None = None
) -> Anatomy:
    """Any encoder built of BERT's modules."""
    config = base.config
    return Anatomy(
        family=family,
        base=base,
        words=base.embeddings.word_embeddings,
        embedding_norm=Norm(base.embeddings.LayerNorm),
        embedding_projection=None if projection is None else Projection(Dense(projection)),
        blocks=tuple(_block(layer) for layer in base.encoder.layer),
        final_norm=None,
        heads=config.num_attention_heads,
        positions=positions,
        causal=config.is_decoder,
    )


def _block(layer: Any) -> Block:
    attention = layer.attention
    return Block(
        module=layer,
        order="post",
        attention=Attention(
            core=attention.self,
            writes=attention.output.dense,
            value=Dense(attention.self.value),
            output=Dense(attention.output.dense),
        ),
        attention_norm=Norm(attention.output.LayerNorm),
        feed_forward=FeedForward(writes=layer.output.dense, output=Dense(layer.output.dense)),
        feed_forward_norm=Norm(layer.output.LayerNorm),
    )

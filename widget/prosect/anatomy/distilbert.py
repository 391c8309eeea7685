"""DistilBERT (Sanh et al. 2019): post-norm encoder without token types."""

from __future__ import annotations

from typing import Any

from prosect.anatomy.vocabulary import Anatomy, Attention, Block, Dense, FeedForward, Norm


def anatomy(base: Any) -> Anatomy:
    """Describe DistilBERT."""
    config = base.config
    return Anatomy(
        family="DistilBERT",
        base=base,
        words=base.embeddings.word_embeddings,
        embedding_norm=Norm(base.embeddings.LayerNorm),
        embedding_projection=None,
        blocks=tuple(_block(layer) for layer in base.transformer.layer),
        final_norm=None,
        heads=config.n_heads,
        positions=config.max_position_embeddings,
        causal=False,
    )


def _block(layer: Any) -> Block:
    attention = layer.attention
    return Block(
        module=layer,
        order="post",
        attention=Attention(
            core=attention,
            writes=attention.out_lin,
            value=Dense(attention.v_lin),
            output=Dense(attention.out_lin),
        ),
        attention_norm=Norm(layer.sa_layer_norm),
        feed_forward=FeedForward(writes=layer.ffn.lin2, output=Dense(layer.ffn.lin2)),
        feed_forward_norm=Norm(layer.output_layer_norm),
    )

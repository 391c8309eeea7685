"""BERT (Devlin et al. 2019): post-norm encoder; several later encoders have the same layers."""

from __future__ import annotations

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
    Projection,
    Scores,
    Words,
)


def anatomy(base: Any) -> Anatomy:
    """Describe BERT."""
    return encoder(base, family="BERT", positions=base.config.max_position_embeddings)


def encoder(base: Any, *, family: str, positions: int, projection: Any = None) -> Anatomy:
    """Describe any encoder built of BERT's modules."""
    after_norm = () if projection is None else (Projection(Dense(projection)),)
    heads = base.config.num_attention_heads
    return Anatomy(
        family=family,
        base=base,
        words=Words(base.embeddings.word_embeddings),
        embeddings=embeddings(base.embeddings),
        stem=(Norm(base.embeddings.LayerNorm), *after_norm),
        blocks=tuple(_block(layer, heads) for layer in base.encoder.layer),
        positions=positions,
        causal=base.config.is_decoder,
    )


def embeddings(module: Any) -> tuple[Embedding, ...]:
    """Word, position and type, those that there are."""
    found = [Embedding("word", module.word_embeddings)]
    if getattr(module, "position_embeddings", None) is not None:
        found.append(Embedding("position", module.position_embeddings))
    if getattr(module, "token_type_embeddings", None) is not None:
        found.append(Embedding("type", module.token_type_embeddings))
    return tuple(found)


def feed_forward_of(layer: Any) -> FeedForward:
    """The feed-forward of a layer with BERT's names."""
    inner = layer.intermediate
    return FeedForward(Dense(inner.dense), inner.intermediate_act_fn, Dense(layer.output.dense))


def head(model: Any) -> Head | None:
    """The head of a masked model: a transform, then a map to the vocabulary."""
    predictions = getattr(getattr(model, "cls", None), "predictions", None)
    if predictions is None:
        return None
    transform = predictions.transform
    return Head(
        Dense(predictions.decoder),
        Dense(transform.dense),
        transform.transform_act_fn,
        Norm(transform.LayerNorm),
    )


def _block(layer: Any, heads: int) -> Block:
    own, written = layer.attention.self, layer.attention.output
    scores = Scores(Dense(own.query), Dense(own.key), own.scaling)
    attention = Attention(own, Dense(own.value), Dense(written.dense), heads, heads, scores)
    feed_forward = feed_forward_of(layer)
    return Block(
        layer, (attention, Norm(written.LayerNorm), feed_forward, Norm(layer.output.LayerNorm))
    )

"""T5 (Raffel et al. 2020): pre-norm encoder and decoder, RMSNorm, no biases, relative positions."""

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
    return _stack(model.get_encoder(), "T5 encoder")


def decoder(model: Any) -> Anatomy:
    """Describe the decoder, its attention to the source included."""
    return _stack(model.get_decoder(), "T5 decoder")


def head(model: Any) -> Head | None:
    """The head; where it shares the embeddings, the hidden state is scaled first."""
    own, config = plain_head(model), model.config
    scaled = getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)
    return replace(own, scale=config.d_model**-0.5) if own is not None and scaled else own


def _stack(base: Any, family: str) -> Anatomy:
    heads = base.config.num_heads
    return Anatomy(
        family=family,
        base=base,
        words=Words(base.embed_tokens),
        embeddings=(Embedding("word", base.embed_tokens),),
        blocks=tuple(_block(layer, heads) for layer in base.block),
        tail=(Norm(base.final_layer_norm, "rms"),),
        causal=base.is_decoder,
    )


def _block(layer: Any, heads: int) -> Block:
    first, *cross, last = layer.layer
    return Block(
        layer,
        (
            _attention(first.SelfAttention, first.layer_norm, heads, "attention"),
            *(_attention(c.EncDecAttention, c.layer_norm, heads, "source") for c in cross),
            _feed_forward(last.DenseReluDense, last.layer_norm),
        ),
    )


def _feed_forward(dense: Any, norm: Any) -> FeedForward:
    before, output = Norm(norm, "rms"), Dense(dense.wo)
    if hasattr(dense, "wi"):
        return FeedForward(Dense(dense.wi), dense.act, output, before=before)
    gate = Dense(dense.wi_1)
    return FeedForward(Dense(dense.wi_0), dense.act, output, gate=gate, before=before)


def _attention(own: Any, norm: Any, heads: int, term: Any) -> Attention:
    before = Norm(norm, "rms")
    scores = Scores(Dense(own.q), Dense(own.k), own.scaling)
    value, output = Dense(own.v), Dense(own.o)
    return Attention(own, value, output, heads, heads, scores, before=before, term=term)

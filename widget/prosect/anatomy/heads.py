"""Output heads that predict tokens: a linear map, behind a transform in masked models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import gelu

from prosect.anatomy.vocabulary import Dense, Norm
from prosect.errors import UnsupportedModelError


@dataclass(frozen=True)
class Head:
    """Logits of a last hidden state: decoder(norm(activation(dense(x)))) · scale, or decoder alone.

    Before any cap that the model puts on them (Gemma 2).

    Attributes
    ----------
    decoder
        The map to the vocabulary.
    dense, activation, norm
        The transform in front of it, where there is one.
    outlet
        A projection of the hidden state before all else (OPT).
    scale
        What the hidden state is multiplied by (T5).
    bias
        What is added at the end beside the decoder's own (BART).
    """

    decoder: Dense
    dense: Dense | None = None
    activation: Callable[[Tensor], Tensor] | None = None
    norm: Norm | None = None
    outlet: Dense | None = None
    scale: float = 1.0
    bias: Tensor | None = None


def head_of(model: Any) -> Head:
    """Describe the head of a model.

    Raises
    ------
    UnsupportedModelError
        If it has none that predicts tokens, or one that is not known.
    """
    kind = model.config.model_type
    found = _masked(model, kind)
    if found is not None:
        return found
    if isinstance(getattr(model, "lm_head", None), nn.Linear):
        config = model.config
        tied = kind == "t5" and getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)
        outlet = getattr(getattr(model.base_model, "decoder", None), "project_out", None)
        bias = getattr(model, "final_logits_bias", None)
        return Head(
            Dense(model.lm_head),
            outlet=None if outlet is None else Dense(outlet),
            scale=config.d_model**-0.5 if tied else 1.0,
            bias=None if bias is None else bias[0],
        )
    raise UnsupportedModelError(
        f"{type(model).__name__} has no head that predicts tokens: "
        "load the model with its language-modelling head, as with AutoModelForMaskedLM."
    )


def _masked(model: Any, kind: str) -> Head | None:
    """Heads of masked models: dense, activation, norm, decoder under several names."""
    predictions = getattr(getattr(model, "cls", None), "predictions", None)
    if predictions is not None and hasattr(predictions, "transform"):
        transform = predictions.transform
        return Head(
            Dense(predictions.decoder),
            Dense(transform.dense),
            transform.transform_act_fn,
            Norm(transform.LayerNorm),
        )
    head: Any = getattr(model, "lm_head", None)
    if hasattr(head, "layer_norm"):  # RoBERTa, MPNet
        return Head(Dense(head.decoder), Dense(head.dense), gelu, Norm(head.layer_norm))
    if hasattr(model, "generator_predictions"):
        made = model.generator_predictions
        return Head(
            Dense(model.generator_lm_head), Dense(made.dense), made.activation, Norm(made.LayerNorm)
        )
    if kind == "albert" and hasattr(model, "predictions"):
        made = model.predictions
        return Head(Dense(made.decoder), Dense(made.dense), made.activation, Norm(made.LayerNorm))
    if hasattr(model, "vocab_projector"):
        return Head(
            Dense(model.vocab_projector),
            Dense(model.vocab_transform),
            model.activation,
            Norm(model.vocab_layer_norm),
        )
    if kind == "modernbert" and hasattr(model, "decoder"):
        made = model.head
        return Head(Dense(model.decoder), Dense(made.dense), made.act, Norm(made.norm))
    return None

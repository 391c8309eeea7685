"""Which file describes which architecture, by the ``model_type`` of the model's configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prosect.anatomy import (
    albert,
    bart,
    bert,
    bloom,
    deberta,
    distilbert,
    electra,
    gemma,
    gpt2,
    gpt_neo,
    gpt_neox,
    gptj,
    llama,
    modernbert,
    mpnet,
    olmo2,
    opt,
    phi,
    roberta,
    t5,
)
from prosect.anatomy.vocabulary import Anatomy
from prosect.errors import UnsupportedModelError

Describe = Callable[[Any], Anatomy]

SINGLE: dict[str, Describe] = {
    "bert": bert.anatomy,
    "roberta": roberta.anatomy,
    "xlm-roberta": roberta.anatomy,
    "camembert": roberta.anatomy,
    "electra": electra.anatomy,
    "albert": albert.anatomy,
    "distilbert": distilbert.anatomy,
    "mpnet": mpnet.anatomy,
    "modernbert": modernbert.anatomy,
    "deberta-v2": deberta.anatomy,
    "gpt2": gpt2.anatomy,
    "opt": opt.anatomy,
    "gpt_neo": gpt_neo.anatomy,
    "gpt_neox": gpt_neox.anatomy,
    "gptj": gptj.anatomy,
    "phi": phi.anatomy,
    "bloom": bloom.anatomy,
    **dict.fromkeys(llama.FAMILIES, llama.anatomy),
    **dict.fromkeys(gemma.FAMILIES, gemma.anatomy),
    "olmo2": olmo2.anatomy,
}
"""Models of one stack, described from their base model."""

PAIRS: dict[str, tuple[Describe, Describe]] = {
    "t5": (t5.encoder, t5.decoder),
    "bart": (bart.encoder, bart.decoder),
    "marian": (bart.encoder, bart.decoder),
}
"""Models of an encoder and a decoder, described from the whole model."""


def anatomies_of(model: Any) -> tuple[Anatomy, Anatomy | None]:
    """Describe a transformers model in prosect's vocabulary.

    Returns
    -------
    The anatomy of the model, or of its encoder; and of its decoder, where it has one beside it.

    Raises
    ------
    UnsupportedModelError
        If the architecture has no anatomy, or this model of it has parts that would be missed.
    """
    config = getattr(model, "config", None)
    kind = getattr(config, "model_type", None)
    if kind is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} is not a transformers model: "
            "load one with AutoModel.from_pretrained and pass that."
        )
    if kind in PAIRS:
        encoder, decoder = PAIRS[kind]
        return encoder(model), decoder(model)
    if kind not in SINGLE:
        known = ", ".join(sorted([*SINGLE, *PAIRS]))
        raise UnsupportedModelError(
            f"The architecture {kind!r} is not supported yet: use a model of one of {known}."
        )
    if getattr(config, "chunk_size_feed_forward", 0):
        raise UnsupportedModelError(
            "This model computes its feed-forwards in chunks, which hides them from view: "
            "load it with chunk_size_feed_forward=0."
        )
    if getattr(config, "add_cross_attention", False):
        raise UnsupportedModelError(
            f"This {kind!r} model has cross-attention, which is not supported in it: "
            "load it with add_cross_attention=False."
        )
    anatomy = SINGLE[kind](model.base_model)
    if not anatomy.blocks:
        raise UnsupportedModelError("This model has no layers: there is nothing to dissect.")
    return anatomy, None

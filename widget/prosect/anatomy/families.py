"""Which file describes which architecture, by the ``model_type`` of the model's configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prosect.anatomy import bert, distilbert, electra, gpt2, roberta
from prosect.anatomy.vocabulary import Anatomy
from prosect.errors import UnsupportedModelError

FAMILIES: dict[str, Callable[[Any], Anatomy]] = {
    "bert": bert.anatomy,
    "roberta": roberta.anatomy,
    "electra": electra.anatomy,
    "distilbert": distilbert.anatomy,
    "gpt2": gpt2.anatomy,
}


def anatomy_of(model: Any) -> Anatomy:
    """Describe a transformers model in prosect's vocabulary.

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
    if kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModelError(
            f"The architecture {kind!r} is not supported yet: use a model of one of {known}."
        )
    if getattr(config, "add_cross_attention", False):
        raise UnsupportedModelError(
            f"This {kind!r} model has cross-attention, which is not supported yet: "
            "load it with add_cross_attention=False."
        )
    return FAMILIES[kind](model.base_model)

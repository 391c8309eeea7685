"""Which file describes which architecture, by the ``model_type`` of the model's configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from prosect.anatomy.vocabulary import Anatomy, Head, plain_head
from prosect.errors import UnsupportedModelError

Describe = Callable[[Any], Anatomy]


@dataclass(frozen=True)
class Family:
    """How models of one architecture are described.

    Attributes
    ----------
    anatomy
        The parts of a base model, or of its encoder where it has a decoder beside it.
    head
        The output head of a whole model; None for a model without the one that predicts tokens.
    decoder
        The parts of the decoder beside an encoder.
    """

    anatomy: Describe
    head: Callable[[Any], Head | None] = plain_head
    decoder: Describe | None = None


_ROBERTA = Family(roberta.anatomy, roberta.head)
_BART = Family(bart.encoder, bart.head, bart.decoder)

FAMILIES: dict[str, Family] = {
    "bert": Family(bert.anatomy, bert.head),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "electra": Family(electra.anatomy, electra.head),
    "albert": Family(albert.anatomy, albert.head),
    "distilbert": Family(distilbert.anatomy, distilbert.head),
    "mpnet": Family(mpnet.anatomy, roberta.head),
    "modernbert": Family(modernbert.anatomy, modernbert.head),
    "deberta-v2": Family(deberta.anatomy, bert.head),
    "gpt2": Family(gpt2.anatomy),
    "opt": Family(opt.anatomy, opt.head),
    "gpt_neo": Family(gpt_neo.anatomy),
    "gpt_neox": Family(gpt_neox.anatomy),
    "gptj": Family(gptj.anatomy),
    "phi": Family(phi.anatomy),
    "bloom": Family(bloom.anatomy),
    **dict.fromkeys(llama.FAMILIES, Family(llama.anatomy)),
    **dict.fromkeys(gemma.FAMILIES, Family(gemma.anatomy)),
    "olmo2": Family(olmo2.anatomy),
    "t5": Family(t5.encoder, t5.head, t5.decoder),
    "bart": _BART,
    "marian": _BART,
}
"""Every supported architecture, by the ``model_type`` of its configuration."""


def anatomies_of(model: Any) -> tuple[Anatomy, Anatomy | None]:
    """Describe a transformers model in prosect's vocabulary.

    Returns
    -------
    The anatomy of the model, or of its encoder; and of its decoder, where it has one beside it.

    Raises
    ------
    UnsupportedModelError
        If the architecture has no anatomy, this model of it has parts that would be missed, or a
        weight cannot be read.
    """
    config, kind = getattr(model, "config", None), _kind_of(model)
    if kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModelError(
            f"The architecture {kind!r} is not supported yet: use a model of one of {known}."
        )
    family = FAMILIES[kind]
    if getattr(config, "chunk_size_feed_forward", 0):
        raise UnsupportedModelError(
            "This model computes its feed-forwards in chunks, which hides them from view: "
            "load it with chunk_size_feed_forward=0."
        )
    if family.decoder is None and getattr(config, "add_cross_attention", False):
        raise UnsupportedModelError(
            f"This {kind!r} model has cross-attention, which is not supported in it: "
            "load it with add_cross_attention=False."
        )
    try:
        anatomy = family.anatomy(model.base_model)
        decoder = None if family.decoder is None else family.decoder(model.base_model)
    except AttributeError as error:
        raise UnsupportedModelError(
            f"{type(model).__name__} lacks a part that {kind!r} models have ({error}): "
            "use the model class of transformers, without changed or removed modules."
        ) from error
    for stack in (anatomy, decoder):
        if stack is None:
            continue
        if not stack.blocks:
            raise UnsupportedModelError("This model has no layers: there is nothing to dissect.")
        stack.check()
    return anatomy, decoder


def head_of(model: Any) -> Head:
    """Describe the head of a model.

    Raises
    ------
    UnsupportedModelError
        If it has none that predicts tokens, or one that is not known.
    """
    family = FAMILIES.get(_kind_of(model))
    try:
        head = None if family is None else family.head(model)
    except AttributeError:  # a head of the same name that predicts something else
        head = None
    if head is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no head that predicts tokens: "
            "load the model with its language-modelling head, as with AutoModelForMaskedLM."
        )
    return head


def _kind_of(model: Any) -> str:
    kind = getattr(getattr(model, "config", None), "model_type", None)
    if kind is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} is not a transformers model: "
            "pass one loaded with AutoModel.from_pretrained, "
            "or a pipeline, a SentenceTransformer or a PeftModel that holds one."
        )
    return kind

"""What people hold: a model inside a pipeline, an adapter, a compiled module or another wrapper."""

from __future__ import annotations

from typing import Any

from prosect.errors import UnsupportedModelError


def unwrap(given: Any) -> tuple[Any, Any]:
    """The transformers model inside an object, and the tokenizer that comes with it.

    Pipelines, sentence transformers, adapted, compiled and parallel models are opened, however they
    are nested; nothing in them is changed. Anything else is returned as it is.

    Returns
    -------
    The model, and the tokenizer of a pipeline or sentence transformer; else None.

    Raises
    ------
    UnsupportedModelError
        If a wrapper changes what the model computes in a way that belongs to no weight.
    """
    model, tokenizer = given, None
    while True:
        if _is_a(model, "transformers", "Pipeline"):
            tokenizer = tokenizer or model.tokenizer
            model = model.model
        elif _is_a(model, "sentence_transformers", "SentenceTransformer"):
            first = _transformer_of(model)
            tokenizer = tokenizer or first.tokenizer
            model = first.auto_model
        elif _is_a(model, "peft", "PeftModel") or _is_a(model, "peft", "PeftMixedModel"):
            _check_adapters(model)
            model = model.base_model.model
        elif _is_a(model, "torch", "OptimizedModule"):
            model = model._orig_mod
        elif _is_a(model, "torch", "DataParallel", "DistributedDataParallel"):
            model = model.module
        else:
            return model, tokenizer


def _is_a(given: Any, package: str, *names: str) -> bool:
    """Whether an object is of a class of a package, which need not be installed."""
    return any(
        kind.__name__ in names and kind.__module__.partition(".")[0] == package
        for kind in type(given).__mro__
    )


def _transformer_of(model: Any) -> Any:
    """The first module of a sentence transformer, which holds the model and the tokenizer."""
    first = model[0] if len(model) else None
    if not _is_a(first, "sentence_transformers", "Transformer"):
        raise UnsupportedModelError(
            f"The first module of this SentenceTransformer is a {type(first).__name__}, "
            "not a Transformer: give a SentenceTransformer that starts with one."
        )
    return first


def _check_adapters(model: Any) -> None:
    """Refuse adapters that do more than change the modules that they are in."""
    own, adapters = type(model.base_model), [model.peft_config[name] for name in _names(model)]
    tuner = next((kind for kind in own.__mro__ if kind.__name__ == "BaseTuner"), None)
    # the forward pass of AdaLoRA differs only in its loss
    inside = tuner is not None and (own.forward is tuner.forward or own.__name__ == "AdaLoraModel")
    outside = [a for a in adapters if not inside or getattr(a, "alora_invocation_tokens", None)]
    if outside:
        kind = getattr(outside[0].peft_type, "value", outside[0].peft_type)
        raise UnsupportedModelError(
            f"An adapter of type {kind} that does more than change weights is not supported: "
            "give the model without the adapter, or one with a plain LoRA adapter."
        )


def _names(model: Any) -> list[str]:
    active = getattr(model, "active_adapters", None) or getattr(model, "active_adapter", [])
    return [active] if isinstance(active, str) else list(active)

"""Apply a model's own output head to any vector in the place of a last hidden state.

The head is never copied: the model runs on one token, and what its base returns is replaced by the
vector before the head sees it. So every family's head works, with its transform, scale and cap.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.anatomy.vocabulary import Anatomy
from prosect.capture import evaluating, lift
from prosect.errors import UnsupportedModelError


def logits_of(
    model: Any, anatomy: Anatomy, vector: Float[Tensor, "d"], start: int | None = None
) -> Float[Tensor, "vocabulary"]:
    """What the model's head makes of a vector.

    Parameters
    ----------
    model
        The whole model.
    anatomy
        Of the stack that the head sits on.
    vector
        In the place of its last hidden state.
    start
        A token for the decoder to run on, where the model has one beside its encoder.

    Raises
    ------
    UnsupportedModelError
        If the model has no head that predicts tokens.
    """
    put = vector.to(model.dtype).reshape(1, 1, -1)
    replaced = False

    def replace_last(_module: object, _arguments: object, output: Any) -> Any:
        nonlocal replaced
        replaced = True
        output["last_hidden_state"] = put
        return output

    def replace_input(_module: object, _arguments: object) -> tuple[Tensor]:
        nonlocal replaced
        replaced = True
        return (put,)

    if anatomy.outlet is None:
        handle = anatomy.base.register_forward_hook(replace_last)
    else:
        handle = anatomy.outlet.register_forward_pre_hook(replace_input)
    inputs = {"input_ids": torch.zeros(1, 1, dtype=torch.long, device=put.device)}
    if start is not None:
        inputs["decoder_input_ids"] = torch.full_like(inputs["input_ids"], start)
    try:
        with torch.no_grad(), evaluating(model):
            output = model(**inputs, return_dict=True)
    finally:
        handle.remove()
    logits = getattr(output, "logits", getattr(output, "prediction_logits", None))
    predicts = getattr(model, "get_output_embeddings", lambda: None)() is not None
    if not predicts or logits is None or logits.ndim != 3:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no head that predicts tokens: "
            "load the model with its language-modelling head, as with AutoModelForMaskedLM."
        )
    if not replaced:
        raise UnsupportedModelError(
            f"The head of {type(model).__name__} does not read what {type(anatomy.base).__name__} "
            "returns, so no other vector can be put in its place."
        )
    return lift(logits[0, -1])

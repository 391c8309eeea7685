"""Apply a model's own output head to any vectors in the place of last hidden states.

The head is never copied: the model runs on one token, and what its base returns is replaced by the
vectors before the head sees it. So every family's head works, with its transform, scale and cap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.anatomy.vocabulary import Anatomy
from prosect.capture.run import ONE_AT_A_TIME, evaluating
from prosect.capture.weights import lift
from prosect.errors import UnsupportedModelError
from prosect.modes import plain_arithmetic

BLOCK = 2**24
"""How many logits are computed at once."""


@dataclass(frozen=True, eq=False, repr=False)
class LogitContributions:
    """What each input token adds to one logit, signed.

    Attributes
    ----------
    values
        [source], in logits; with ``rest`` they sum to ``logit``.
    rest
        What belongs to no token: every bias on the way.
    logit
        What the model computes, before any cap.
    error
        The certificate: |Σ values + rest − logit| over the length of what is summed.
    """

    values: Float[Tensor, "source"]
    rest: float
    logit: float
    error: float

    def __repr__(self) -> str:
        return f"LogitContributions(logit {self.logit:.3f}, error {self.error:.1e})"


@dataclass(frozen=True)
class Prediction:
    """A token that an output head predicts.

    Attributes
    ----------
    label
        How to show it.
    id
        Its index in the vocabulary.
    probability
        Of all tokens, in [0, 1].
    logit
        What the head computed.
    """

    label: str
    id: int
    probability: float
    logit: float


def logits_of(
    model: Any, anatomy: Anatomy, vectors: Float[Tensor, "vector d"], start: int | None = None
) -> Iterator[Float[Tensor, "block vocabulary"]]:
    """What the model's head makes of vectors, block by block: all at once may not fit in memory.

    Parameters
    ----------
    model
        The whole model.
    anatomy
        Of the stack that the head sits on.
    vectors
        In the place of its last hidden states.
    start
        A token for the decoder to run on, where the model has one beside its encoder.

    Raises
    ------
    UnsupportedModelError
        If the model has no head that predicts tokens.
    """
    for block in vectors.split(max(1, BLOCK // anatomy.words.num_embeddings)):
        yield _logits(model, anatomy, block, start)


def logits_of_one(
    model: Any, anatomy: Anatomy, vector: Float[Tensor, "d"], start: int | None = None
) -> Float[Tensor, "vocabulary"]:
    """What the model's head makes of a single vector; see :func:`logits_of`."""
    return _logits(model, anatomy, vector[None], start)[0]


def _logits(
    model: Any, anatomy: Anatomy, vectors: Float[Tensor, "vector d"], start: int | None
) -> Float[Tensor, "vector vocabulary"]:
    put = vectors.to(model.dtype)[None]
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

    inputs = {"input_ids": torch.zeros(1, 1, dtype=torch.long, device=put.device)}
    if start is not None:
        inputs["decoder_input_ids"] = torch.full_like(inputs["input_ids"], start)
    with ONE_AT_A_TIME, plain_arithmetic(), evaluating(model):
        if anatomy.outlet is None:
            handle = anatomy.base.register_forward_hook(replace_last)
        else:
            handle = anatomy.outlet.register_forward_pre_hook(replace_input)
        try:
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
    return lift(logits[0])

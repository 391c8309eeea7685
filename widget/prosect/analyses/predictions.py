"""Predictions of a model's output head from sums of terms, and contributions to logits.

The head is never copied: the model runs on one token, and what its base returns is replaced by the
vectors before the head sees it. So every family's head works, with its transform, scale and cap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from prosect.analyses.cache import Analyses
from prosect.analyses.certificate import certified
from prosect.analyses.maps import last_parts
from prosect.analyses.terms import four_terms
from prosect.anatomy.families import head_of
from prosect.anatomy.vocabulary import Anatomy, Term
from prosect.capture.run import ONE_AT_A_TIME, evaluating
from prosect.capture.weights import head_record_of, lift
from prosect.engines.activation import Baseline
from prosect.engines.logits import logit_parts
from prosect.errors import ProsectError, UnsupportedModelError
from prosect.tokens import token_label
from prosect.validation import check_count, whole_number

BLOCK = 2**24
"""The largest number of logits that are computed at once."""


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
    with ONE_AT_A_TIME, torch.no_grad(), evaluating(model):
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


# --- of a run -----------------------------------------------------------------------------------


def check_head_reads(anatomy: Anatomy, decoder: Anatomy | None) -> None:
    """Refuse the encoder of a model whose head sits on its decoder.

    Raises
    ------
    ProsectError
        If the stack is not the decoder, where there is one.
    """
    if decoder is not None and anatomy is not decoder:
        raise ProsectError(
            "The head of this model sits on its decoder: "
            "trace with a target, lens.trace(text, target=...), and predict from that."
        )


def predict(
    analyses: Analyses,
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    terms: Term | Sequence[Term] | None = None,
    position: int = -1,
    k: int = 10,
    start: int | None = None,
) -> list[Prediction]:
    """The tokens that the model's own head predicts from the sum of some terms.

    The head is used as the model uses it, its transform included; the terms of a model with a final
    norm are those after it.

    Parameters
    ----------
    model, tokenizer
        The whole model, whose head reads this run, and its tokenizer.
    terms
        Which terms to add up, such as ``("input", "attention")``; all by default, which gives the
        model's own predictions.
    position
        Of the token at which to predict; negative counts from the end.
    k
        How many predictions, most probable first.
    start
        A token for the decoder to run on, where the model has one beside its encoder.

    Raises
    ------
    ProsectError
        If the model has no head that predicts tokens, or an argument is out of range.
    StaleTraceError
        If the model is no longer what it was in the run.
    """
    known = analyses.anatomy.terms
    asked = (terms,) if isinstance(terms, str) else terms
    names = known if asked is None else tuple(dict.fromkeys(asked))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ProsectError(f"terms must be one or more of {', '.join(known)}, got {unknown[0]!r}.")
    check_count(k, "k")
    (place,) = analyses.positions([position])
    split = four_terms(analyses)
    analyses.run.whole.check()
    chosen = [split.names.index(name) for name in names]
    vector = split.values[chosen, -1, place].sum(0)
    logits = logits_of_one(model, analyses.anatomy, vector, start)
    probabilities = logits.softmax(-1)
    best = probabilities.topk(min(k, len(probabilities))).indices.tolist()
    return [
        Prediction(
            label=token_label(id, tokenizer),
            id=id,
            probability=float(probabilities[id]),
            logit=float(logits[id]),
        )
        for id in best
    ]


def logit_contributions(
    analyses: Analyses,
    model: Any,
    token: int | Prediction,
    position: int = -1,
    baseline: Baseline = "zero",
) -> LogitContributions:
    """What each input token adds to the logit of a token, through all layers and the head.

    The parts of the map "contribution", pushed on through the model's own head: signed, exact, with
    all that is frozen on the way taken from the run. Of a capped logit, what is before the cap.

    Parameters
    ----------
    model
        The whole model, whose head reads this run.
    token
        The predicted token's index in the vocabulary, or a prediction.
    position
        Where it is predicted; negative counts from the end.
    baseline
        Where integrated gradients of the feed-forwards start.

    Raises
    ------
    ProsectError
        If there is no such token, position or baseline, or the model has no head that predicts
        tokens.
    ReconstructionError
        If the parts do not add up to the logit.
    StaleTraceError
        If the model is no longer what it was in the run.
    """
    id = whole_number(token.id if isinstance(token, Prediction) else token, "token")
    (place,) = analyses.positions([position])
    analyses.run.whole.check()
    hidden = analyses.run.hidden
    head = head_record_of(head_of(model), model, hidden.device)
    _, size = head.decoder.weight.shape
    if not 0 <= id < size:
        raise ProsectError(f"token must be from 0 to {size - 1}, got {id}.")
    parts, rest = last_parts(analyses, place, baseline)
    values, left = logit_parts(parts, rest, head, id)
    whole = hidden[-1, place]
    _, logit = logit_parts(whole[None] * 0, whole, head, id)
    gap = (values.sum() + left - logit).abs()
    # 0/0: a logit that is zero, of parts that are zero, is exact
    error = float(gap / (values.abs().sum() + left.abs())) if bool(gap != 0) else 0.0
    certified(error, "the logit", analyses.dtype)
    return LogitContributions(values, float(left), float(logit), error)

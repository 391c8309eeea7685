"""The doctor: what prosect can do with a model, what it cannot and why, measured on the spot."""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, get_args

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from prosect._version import __version__
from prosect.analyses.attribution import attribution
from prosect.analyses.cache import Analyses
from prosect.analyses.certificate import TOLERANCES
from prosect.analyses.kinds import kinds, token_map
from prosect.analyses.predictions import logits_of_one
from prosect.analyses.terms import Neurons, Parts, Terms
from prosect.anatomy.families import anatomies_of
from prosect.anatomy.vocabulary import Anatomy
from prosect.capture.run import Run, evaluating, run
from prosect.capture.tap import attending
from prosect.capture.weights import lift
from prosect.engines.splits import By
from prosect.engines.terms import reconstruction_error
from prosect.errors import ProsectError
from prosect.lens import Lens
from prosect.unwrap import unwrap

TOKENS = 8
"""How many tokens the model is tried on."""


@dataclass(frozen=True)
class Row:
    """One line of the doctor's table.

    Attributes
    ----------
    what
        A fact about the model, or something that prosect does.
    supported
        Whether it does so with this model; None for a fact.
    detail
        The fact, what was measured, or why not.
    """

    what: str
    supported: bool | None
    detail: str


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What prosect can do with a model; ``print`` shows it as a table."""

    rows: tuple[Row, ...]

    def __getitem__(self, what: str) -> Row:
        """The row of that name, as in ``diagnosis["terms"].supported``."""
        for row in self.rows:
            if row.what == what:
                return row
        raise KeyError(what)

    def __repr__(self) -> str:
        tried = [row.supported for row in self.rows if row.supported is not None]
        return f"Diagnosis({self['architecture'].detail}: {sum(tried)} of {len(tried)} supported)"

    def __str__(self) -> str:
        answers = {None: "", True: "yes", False: "no"}
        width = max(len(row.what) for row in self.rows)
        return "\n".join(
            f"{row.what:{width}}  {answers[row.supported]:3}  {row.detail}" for row in self.rows
        )


def doctor(model: Any, tokenizer: PreTrainedTokenizerBase | None = None) -> Diagnosis:
    """Print a table of what is supported for a model or a Lens, and why the rest is not.

    The model runs on a few tokens drawn at random, always the same, twice: by itself with eager
    attention and as prosect captures it. It is left as it was found.

    Parameters
    ----------
    model
        Any model of transformers, what holds one (see :class:`Lens`), or a Lens; one that is not
        supported gets the reason, not an error.
    tokenizer
        Its tokenizer, to be checked too.

    Returns
    -------
    The table, whose rows say what is ``supported``, for programs.
    """
    if isinstance(model, Lens):
        model, tokenizer = model.model, model.tokenizer
    diagnosis = Diagnosis(tuple(_examine(model, tokenizer)))
    print(diagnosis)
    return diagnosis


def _examine(model: Any, tokenizer: PreTrainedTokenizerBase | None) -> list[Row]:
    versions = [f"{name} {version(name)}" for name in ("transformers", "torch", "anywidget")]
    rows = [
        Row("versions", None, ", ".join([f"prosect {__version__}", *versions, _python()])),
        Row("architecture", None, _architecture(model)),
    ]
    try:
        model, own_tokenizer = unwrap(model)
        tokenizer = own_tokenizer if tokenizer is None else tokenizer
        anatomy, decoder = anatomies_of(model)
    except Exception as error:
        return [*rows, Row("trace", False, _reason(error))]
    rows += [
        Row("family", None, _family(anatomy, decoder)),
        Row("size", None, _size(anatomy, decoder)),
        Row("precision", None, _precision(model.dtype)),
        Row("device", None, ", ".join(sorted({str(p.device) for p in model.parameters()}))),
    ]
    if tokenizer is not None:
        rows.append(_row("tokenizer", lambda: _tokenizer(model, tokenizer)))
    try:
        ids = _ids(model, anatomy, tokenizer)
        encoder_run, gap = _capture(anatomy, {"input_ids": ids})
        stacks = [(anatomy, encoder_run)]
        if decoder is not None:
            source = encoder_run.hidden[-1:].to(model.dtype)
            inputs = {"input_ids": ids, "encoder_hidden_states": source}
            decoder_run, decoder_gap = _capture(decoder, inputs)
            stacks, gap = [*stacks, (decoder, decoder_run)], max(gap, decoder_gap)
    except Exception as error:
        return [*rows, Row("trace", False, _reason(error))]
    rows += [
        Row("trace", True, f"{ids.shape[1]} tokens through the model"),
        Row(
            "parity",
            gap <= TOLERANCES[model.dtype],
            f"hidden states within {gap:.1e} of the model's own with eager attention",
        ),
        _row("terms", lambda: _terms(stacks, model.dtype)),
        _row("finer splits", lambda: _finer(stacks, model.dtype)),
        _row("maps", lambda: _maps(encoder_run, anatomy, model.dtype)),
        _row("attribution", lambda: _attribution(encoder_run, anatomy, model.dtype)),
        _row("predictions", lambda: _predictions(model, *stacks[-1])),
    ]
    if decoder is not None:
        rows.append(_row("cross-attention", lambda: _cross_attention(stacks[-1][1])))
    return rows


def _row(what: str, check: Callable[[], str]) -> Row:
    """What the check found, or why it failed: to the doctor a failure is a finding."""
    try:
        return Row(what, True, check())
    except Exception as error:
        return Row(what, False, _reason(error))


def _reason(error: Exception) -> str:
    sentence = " ".join(str(error).split())
    return sentence if isinstance(error, ProsectError) else f"{type(error).__name__}: {sentence}"


def _python() -> str:
    return f"Python {platform.python_version()}"


def _architecture(model: Any) -> str:
    kind = getattr(getattr(model, "config", None), "model_type", None)
    return type(model).__name__ if kind is None else f"{type(model).__name__} ({kind})"


def _family(anatomy: Anatomy, decoder: Anatomy | None) -> str:
    return anatomy.family if decoder is None else f"{anatomy.family}, {decoder.family}"


def _size(anatomy: Anatomy, decoder: Anatomy | None) -> str:
    if decoder is not None:
        return f"encoder {_size(anatomy, None)}; decoder {_size(decoder, None)}"
    kv_heads = anatomy.blocks[0].attention.kv_heads
    shared = f" over {kv_heads} keys and values" if kv_heads != anatomy.heads else ""
    return f"{len(anatomy.blocks)} layers × {anatomy.heads} heads{shared}"


def _precision(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    return name if dtype.itemsize >= 4 else f"{name}, analysed in float32"


def _tokenizer(model: Any, tokenizer: PreTrainedTokenizerBase) -> str:
    Lens(model, tokenizer)  # raises where it does not belong to the model
    offsets = "with offsets" if tokenizer.is_fast else "without offsets"
    return f"{type(tokenizer).__name__}, {len(tokenizer)} tokens, {offsets}"


def _ids(
    model: Any, anatomy: Anatomy, tokenizer: PreTrainedTokenizerBase | None
) -> Int[Tensor, "1 token"]:
    """A few tokens of the vocabulary, none of them padding or otherwise special."""
    words = anatomy.words
    named = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    special = {getattr(model.config, name, None) for name in named}
    special |= set() if tokenizer is None else set(tokenizer.all_special_ids)
    allowed = [id for id in range(words.num_embeddings) if id not in special]
    count = TOKENS if anatomy.positions is None else min(TOKENS, anatomy.positions)
    drawn = torch.randint(len(allowed), (1, count), generator=torch.Generator().manual_seed(0))
    return torch.tensor(allowed)[drawn].to(words.device)


def _capture(anatomy: Anatomy, inputs: dict[str, Tensor]) -> tuple[Run, float]:
    """A run, and how far its hidden states are from those of the model itself."""
    count = inputs["input_ids"].shape[1]
    (captured,) = run(anatomy, inputs, [count])
    own = _eager_states(anatomy, inputs)
    gaps = [
        reconstruction_error(mine, lift(state[0]).to(mine.device)).max()
        for mine, state in zip(captured.hidden, own, strict=True)
    ]
    return captured, float(torch.stack(gaps).max())


def _eager_states(anatomy: Anatomy, inputs: dict[str, Tensor]) -> list[Tensor]:
    """The hidden states of the model by itself, with eager attention.

    Not by output_hidden_states, for which transformers leaves hooks in the model.
    """
    states: list[Tensor] = []

    def keep(_module: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states.append(args[0] if args else next(iter(kwargs.values())))

    base = anatomy.base
    options: dict[str, Any] = {"use_cache": False} if anatomy.causal else {}
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(evaluating(base))
        stack.enter_context(attending(base, "eager"))
        outlet = set() if anatomy.outlet is None else {anatomy.outlet}
        for module in {block.module for block in anatomy.blocks} | outlet:
            handle = module.register_forward_pre_hook(keep, with_kwargs=True)
            stack.callback(handle.remove)
        output = base(**inputs, **options, return_dict=True)
    return states if anatomy.outlet is not None else [*states, output.last_hidden_state]


Stacks = list[tuple[Anatomy, Run]]


def _terms(stacks: Stacks, dtype: torch.dtype) -> str:
    error = max(
        Terms.of(one.stream, one.hidden, anatomy.terms, dtype).error for anatomy, one in stacks
    )
    return f"{' + '.join(stacks[-1][0].terms)}, error {error:.1e}"


def _finer(stacks: Stacks, dtype: torch.dtype) -> str:
    error = 0.0
    for anatomy, one in stacks:
        last, target = len(anatomy.blocks), one.hidden.shape[1] - 1
        for by in get_args(By):
            parts = Parts.of(one.stream, one.hidden, dtype, by, last, [target])
            error = max(error, parts.error)
        for record in one.stream.feed_forwards:
            error = max(error, Neurons.of(record, target, 1, dtype).error)
    return f"by {', '.join(get_args(By))}, and by neuron, error {error:.1e}"


def _maps(one: Run, anatomy: Anatomy, dtype: torch.dtype) -> str:
    analyses = Analyses(one, anatomy, dtype)
    names = [name for name, kind in kinds(analyses).items() if kind.estimate is None]
    return f"{', '.join(names)}, error {max(token_map(analyses, n).error for n in names):.1e}"


def _attribution(one: Run, anatomy: Anatomy, dtype: torch.dtype) -> str:
    attribution(Analyses(one, anatomy, dtype), probes=2, layers=[0])
    return "exact, and by random probes"


def _predictions(model: Any, anatomy: Anatomy, one: Run) -> str:
    start = getattr(model.config, "decoder_start_token_id", None)
    is_pair = getattr(model.config, "is_encoder_decoder", False)
    logits = logits_of_one(model, anatomy, one.hidden[-1, -1], start or 0 if is_pair else None)
    return f"of {len(logits)} tokens, by {type(model).__name__}'s own head"


def _cross_attention(one: Run) -> str:
    assert one.cross_attention is not None
    layers, heads = one.cross_attention.shape[:2]
    return f"{layers} layers × {heads} heads, a fifth term named source"

"""One forward pass, recorded: the stream's records, the hidden states and the attention of a text.

Forward hooks on the modules that the anatomy names see what enters each norm and what each sublayer
writes; the tap sees the attention. The model is left as it was found, whatever happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from prosect.anatomy.stream import Normed, Projected, Record, State, Wrote
from prosect.anatomy.vocabulary import Anatomy, Attention, FeedForward, Norm, Projection, Step
from prosect.errors import ProsectError, UnsupportedModelError
from prosect.tap import Attentions, tapped


@dataclass(frozen=True)
class Run:
    """Everything one forward pass computed for one text."""

    hidden: Float[Tensor, "layer+1 token d"]
    attention: Float[Tensor, "layer head target source"]
    stream: tuple[Record, ...]


def run(anatomy: Anatomy, inputs: Mapping[str, Tensor]) -> Run:
    """Run the model on one text (a batch of one) and keep what the engines need.

    Raises
    ------
    UnsupportedModelError
        If a layer's attention does not pass through the attention registry.
    ProsectError
        If a hidden state is not finite; the message names the first such layer.
    """
    calls = _Calls()
    base = anatomy.base
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(_evaluating(base))
        stack.enter_context(calls.watching(anatomy))
        attentions = stack.enter_context(tapped(base))
        cache = {"use_cache": False} if anatomy.causal else {}
        output = base(**inputs, **cache, return_dict=True)
        hidden = [calls.next(block.module, "input") for block in anatomy.blocks]
        hidden.append(lift(output.last_hidden_state[0]))
        _check_finite(hidden)
        attention = torch.stack(_attention(anatomy, attentions))
        stream = tuple(_records(anatomy, calls, hidden))
    return Run(torch.stack(hidden), attention, stream)


def lift(tensor: Tensor) -> Tensor:
    """The tensor without its gradient, in at least float32: half precision loses no more."""
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))


class _Calls:
    """What the watched modules received or returned, in the order of their calls.

    A list per module, read in order, because some models use one module in several layers.
    """

    def __init__(self) -> None:
        self._tensors: dict[tuple[nn.Module, str], list[Tensor]] = {}

    @contextmanager
    def watching(self, anatomy: Anatomy) -> Iterator[None]:
        with ExitStack() as stack:
            watched = {(block.module, "input") for block in anatomy.blocks}
            for step in anatomy.steps():
                if isinstance(step, Norm):
                    watched.add((step.module, "input"))
                elif isinstance(step, Attention | FeedForward):
                    watched.add((step.writes, "output"))
            for module, side in watched:
                kept = self._tensors.setdefault((module, side), [])
                if side == "input":

                    def keep_input(_m: nn.Module, args: tuple[Tensor, ...], kept=kept) -> None:
                        kept.append(args[0])

                    handle = module.register_forward_pre_hook(keep_input)
                else:

                    def keep_output(_m: nn.Module, _a: object, output: Tensor, kept=kept) -> None:
                        kept.append(output)

                    handle = module.register_forward_hook(keep_output)
                stack.callback(handle.remove)
            yield

    def next(self, module: nn.Module, side: str) -> Tensor:
        return lift(self._tensors[module, side].pop(0)[0])

    def first(self, module: nn.Module, side: str) -> Tensor:
        return lift(self._tensors[module, side][0][0])


def _records(anatomy: Anatomy, calls: _Calls, hidden: list[Tensor]) -> Iterator[Record]:
    """The run-time side of every step of the anatomy, with the hidden states in their places."""
    norm = anatomy.embedding_norm
    embedded = hidden[0] if norm is None else calls.first(norm.module, "input")
    yield Wrote("embeddings", "input", embedded)
    for step in anatomy.stem():
        yield _record(step, "embedding", calls)
    yield State(0, hidden[0])
    last = len(anatomy.blocks)
    for layer, block in enumerate(anatomy.blocks, start=1):
        for step in block.steps():
            yield _record(step, f"layer {layer}", calls)
        if layer < last or anatomy.final_norm is None:
            yield State(layer, hidden[layer])
    if anatomy.final_norm is not None:
        yield _record(anatomy.final_norm, "final", calls)
        yield State(last, hidden[last])


def _record(step: Step, where: str, calls: _Calls) -> Record:
    if isinstance(step, Norm):
        x = calls.next(step.module, "input")
        variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
        gain, bias = lift(step.gain), lift(step.bias)
        return Normed(f"{where} norm", gain, bias, mean, variance, step.epsilon)
    if isinstance(step, Projection):
        bias = step.dense.bias
        weight = lift(step.dense.weight)
        return Projected(f"{where} projection", weight, None if bias is None else lift(bias))
    bias = step.bias
    name = f"{where} {step.term.replace('_', '-')}"
    return Wrote(
        name, step.term, calls.next(step.writes, "output"), None if bias is None else lift(bias)
    )


def _attention(anatomy: Anatomy, attentions: Attentions) -> list[Tensor]:
    weights = []
    for layer, block in enumerate(anatomy.blocks, start=1):
        seen = attentions.get(block.attention.core)
        if not seen:
            raise UnsupportedModelError(
                f"The attention of layer {layer} does not use the attention registry of "
                "transformers, so it cannot be seen: use a model class of transformers itself."
            )
        weights.append(seen.pop(0).weights[0])
    return weights


def _check_finite(hidden: list[Tensor]) -> None:
    for layer, state in enumerate(hidden):
        if not torch.isfinite(state).all():
            where = "the embeddings" if layer == 0 else f"the output of layer {layer}"
            raise ProsectError(
                f"NaN or infinite values in {where}: check the weights there, "
                "or load the model in float32 if it is in float16."
            )


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for the duration; each module gets its own mode back."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True

"""Run the text of a trace once more through the model itself, with other vectors in some places."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from prosect.anatomy.vocabulary import Anatomy
from prosect.capture.run import ONE_AT_A_TIME, Run, evaluating
from prosect.capture.tap import NAME, attending

Enter = Callable[[int, Tensor], Tensor | None]
"""From a layer and the hidden state that would enter it to the one that enters; None: the same."""


@dataclass(frozen=True)
class Replayed:
    """What a second run computed, [copy, token, d] each, in the precision of the model.

    Attributes
    ----------
    entered
        What reached each block, before anything else was put in its place.
    left
        What left the last block.
    last
        The last hidden state, after the final norm where there is one.
    """

    entered: list[Tensor]
    left: Tensor
    last: Tensor


def replay(anatomy: Anatomy, run: Run, enter: Enter, copies: int = 1) -> Replayed:
    """Run the model as it was on the text of a run.

    Parameters
    ----------
    anatomy
        What was run.
    run
        The run.
    enter
        What enters each block.
    copies
        How many copies of the text go through the model at once.

    Raises
    ------
    StaleTraceError
        If the model is no longer what it was.
    """
    base, blocks = anatomy.base, {block.module for block in anatomy.blocks}
    entered: list[Tensor] = []
    ends: dict[str, Tensor] = {}

    def put(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = "" if args else next(iter(kwargs))
        x = args[0] if args else kwargs[name]
        entered.append(x)
        other = enter(len(entered) - 1, x)
        if other is None:
            return None
        return ((other, *args[1:]), kwargs) if args else (args, {**kwargs, name: other})

    def reached(end: str) -> Any:
        return lambda _, args: ends.update({end: args[0]})

    inputs = {name: x.expand(copies, *x.shape[1:]) for name, x in run.inputs.items()}
    options: dict[str, Any] = {"use_cache": False} if anatomy.causal else {}
    with ExitStack() as stack:
        stack.enter_context(ONE_AT_A_TIME)
        replaced = run.tensors.replaced_in(base)
        stack.enter_context(evaluating(base))
        if anatomy.blocks[0].attention.registry:
            stack.enter_context(attending(base, NAME))
        for module in blocks:
            stack.callback(module.register_forward_pre_hook(put, with_kwargs=True).remove)
        if anatomy.tail:
            tail = anatomy.tail[0].module
            stack.callback(tail.register_forward_pre_hook(reached("left")).remove)
        if anatomy.outlet is not None:
            outlet = anatomy.outlet
            stack.callback(outlet.register_forward_pre_hook(reached("last")).remove)
        output = functional_call(base, replaced, kwargs={**inputs, **options, "return_dict": True})
    last: Tensor = output.last_hidden_state if anatomy.outlet is None else ends["last"]
    return Replayed(entered, ends["left"] if anatomy.tail else last, last)

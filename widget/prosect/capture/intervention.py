"""Value zeroing in the model itself: one token is silenced in one head of every layer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from prosect.anatomy.vocabulary import Anatomy, Attention
from prosect.capture.replay import replay
from prosect.capture.run import Run
from prosect.capture.weights import lift
from prosect.modes import plain_arithmetic


@plain_arithmetic()
def silenced_in_model(
    anatomy: Anatomy, run: Run, places: Sequence[tuple[int, int]]
) -> Float[Tensor, "layer token d"]:
    """What each layer returns when one value vector in it is zero.

    In one run, and still each layer by itself: the hidden state of the run enters every block.
    Queries and keys do not change, so neither do the attention weights. What attends to another text
    writes what it wrote in the run: its queries would change, and its weights are kept too.

    Parameters
    ----------
    anatomy
        What was run.
    run
        The run.
    places
        For each layer the token, and the head of the values, which heads of the queries may share.

    Raises
    ------
    StaleTraceError
        If the model is no longer what it was in the run.
    """
    current = -1

    def enter(layer: int, own: Tensor) -> Tensor:
        nonlocal current
        current = layer
        return run.hidden[layer].to(own)[None]

    def silence(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        token, head = places[current]
        output = output.clone()
        output[..., token, _columns(anatomy.blocks[current].attention, head, output)] = 0
        return output

    def keep(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        return written[current].to(output).expand_as(output)

    written = [record.output for record in run.stream.attentions if record.term == "source"]
    with ExitStack() as stack:
        for module in {block.attention.value.module for block in anatomy.blocks}:
            stack.callback(module.register_forward_hook(silence).remove)
        for module in {block.source.output.module for block in anatomy.blocks if block.source}:
            stack.callback(module.register_forward_hook(keep).remove)
        found = replay(anatomy, run, enter)
    return lift(torch.cat([*found.entered[1:], found.left]))


def _columns(attention: Attention, head: int, output: Tensor) -> Tensor:
    """Where the values of a head are in what the module of the value projection returns."""
    every = torch.arange(output.shape[-1], device=output.device)
    chosen = attention.value.columns
    values = every if chosen is None else every[chosen]
    return values.unflatten(0, (attention.kv_heads, -1))[head]

"""The derivative of a model by forward mode, held against central differences of the model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import prosect
from prosect.capture import derivative as capture
from prosect.capture.derivative import derivative
from prosect.errors import StaleTraceError
from support.families import TEXTS, random_lens, sample

STACKS = (
    "bert",
    "albert-groups",
    "electra-small",
    "gpt2",
    "gptj",
    "opt",
    "bart",
    "bart-decoder",
    "marian-decoder",
)


def directions(trace: prosect.Trace, count: int = 2) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(count, *trace.hidden[0].shape, dtype=trace.hidden.dtype)


def states_with(trace: prosect.Trace, start: int, change: Tensor) -> Tensor:
    """The model's own hidden states when something is added to one of them, [layer+1, token, d]."""
    calls = 0

    def add(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal calls
        calls += 1
        if calls != start + 1:
            return None
        if args:
            return (args[0] + change, *args[1:]), kwargs
        return args, {**kwargs, next(iter(kwargs)): next(iter(kwargs.values())) + change}

    inputs: dict[str, Any] = {"input_ids": torch.tensor([[token.id for token in trace.tokens]])}
    if trace.encoder is not None:
        inputs["encoder_hidden_states"] = trace.encoder.hidden[-1:]
    with ExitStack() as hooks, torch.no_grad():
        for module in {block.module for block in trace.anatomy.blocks}:
            hooks.callback(module.register_forward_pre_hook(add, with_kwargs=True).remove)
        output = trace.anatomy.base(**inputs, output_hidden_states=True)
    return torch.cat(output.hidden_states)


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("stack", STACKS)
def test_the_derivative_is_the_limit_of_differences(stack: str, start: int) -> None:
    trace = sample(stack)
    along = directions(trace)
    found = derivative(trace.anatomy, trace.run, start, along)
    step = 1e-5
    for u, moved in zip(along, found, strict=True):
        ahead, behind = (states_with(trace, start, sign * step * u) for sign in (1, -1))
        expected = ((ahead - behind) / (2 * step))[start + 1 :]
        assert moved.shape == expected.shape
        gap = (moved - expected).flatten(1).norm(dim=1) / expected.flatten(1).norm(dim=1)
        assert float(gap.max()) <= 1e-6


def test_directions_do_not_mix() -> None:
    trace = sample("gpt2")
    along = directions(trace, 3)
    together = derivative(trace.anatomy, trace.run, 0, along)
    for u, moved in zip(along, together, strict=True):
        (alone,) = derivative(trace.anatomy, trace.run, 0, u[None])
        torch.testing.assert_close(moved, alone)


def test_both_ways_to_differentiate_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = sample("bert")
    forward = derivative(trace.anatomy, trace.run, 0, directions(trace))

    def missing(*_: Any) -> Any:
        raise NotImplementedError

    monkeypatch.setattr(capture.forward_ad, "make_dual", missing)
    twice = derivative(trace.anatomy, trace.run, 0, directions(trace))
    torch.testing.assert_close(forward, twice)
    assert not twice.requires_grad


@pytest.mark.parametrize("family", ["bert", "gpt2", "opt", "t5"])
def test_texts_of_a_batch_are_run_again_without_their_padding(family: str) -> None:
    lens = random_lens(family)
    for trace in lens.traces([*TEXTS[:2], "a river"]):
        alone = lens.trace(*trace.texts)
        along = directions(trace)
        found, expected = (derivative(t.anatomy, t.run, 0, along) for t in (trace, alone))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("stack", ["bert", "llama", "bart-decoder", "bloom"])
def test_the_model_is_left_as_it_was_found(stack: str) -> None:
    lens = random_lens(stack.removesuffix("-decoder"))
    trace = lens.trace(TEXTS[0], target=TEXTS[1] if stack == "bart-decoder" else None)
    lens.model.train()
    before = states_of(lens.model)
    derivative(trace.anatomy, trace.run, 0, directions(trace))
    assert states_of(lens.model) == before
    with pytest.raises(RuntimeError):
        derivative(trace.anatomy, trace.run, 0, directions(trace)[..., :3])
    assert states_of(lens.model) == before


def states_of(model: Any) -> list[object]:
    """Whatever a run could leave behind in a model."""
    modules = list(model.modules())
    return [
        model.config._attn_implementation,
        [module.training for module in modules],
        [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in modules],
        [parameter.grad for parameter in model.parameters()],
        torch.is_grad_enabled(),
    ]


@pytest.mark.parametrize("family", ["bert", "llama", "t5"])
def test_a_model_that_moved_to_another_precision_is_run_as_it_was(family: str) -> None:
    lens = random_lens(family)
    trace = lens.trace(TEXTS[0])
    expected = derivative(trace.anatomy, trace.run, 0, directions(trace))
    lens.model.half()
    found = derivative(trace.anatomy, trace.run, 0, directions(trace))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert next(lens.model.parameters()).dtype == torch.float16


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a bias in place": (
        lambda layer: layer.attention.self.query.bias.data.add_(1.0),
        "differs",
    ),
    "a gain in place": (
        lambda layer: layer.output.LayerNorm.weight.detach().mul_(2.0),
        r"tensor 'encoder\.layer\.1\.output\.LayerNorm\.weight' was changed",
    ),
    "a module that is gone": (
        lambda layer: setattr(layer.attention.self, "query", nn.Identity()),
        r"no longer has the tensor 'encoder\.layer\.1\.attention\.self\.query\.weight'",
    ),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_model_that_is_no_longer_the_same_is_refused(how: str) -> None:
    change, message = CHANGES[how]
    lens = random_lens("bert")
    trace = lens.trace(TEXTS[0])
    change(lens.model.bert.encoder.layer[1])
    error = prosect.ReconstructionError if message == "differs" else StaleTraceError
    with pytest.raises(error, match=message):
        trace.attribution(probes=2)


def test_half_precision_is_differentiated_in_half_precision() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        trace = sample("gpt2", dtype)
        found = derivative(trace.anatomy, trace.run, 0, directions(trace))
        assert found.dtype == torch.float32
        wide = random_lens("gpt2")
        wide.model.load_state_dict(trace.lens.model.state_dict())
        exact = wide.trace(TEXTS[0])
        expected = derivative(exact.anatomy, exact.run, 0, directions(trace).double())
        assert float((found - expected).norm() / expected.norm()) < 5e-2

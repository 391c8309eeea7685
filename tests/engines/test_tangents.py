"""Hidden Token Attribution and its tangents, held against autograd's Jacobian of the model itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

import prosect
from prosect.errors import ProsectError, UnsupportedModelError
from support.families import FAMILIES, STACKS, TEXTS, family_of, random_lens, trace_of

TEXT = "The river bank, the road."
EXTRA = {
    "phi-normed": replace(
        FAMILIES["phi"], options=FAMILIES["phi"].options | {"qk_layernorm": True}
    ),
}
SCORED = [stack for stack in STACKS if FAMILIES[family_of(stack)].known_scores] + [*EXTRA]


@cache
def traced(stack: str) -> prosect.Trace:
    """A short text through a random model whose attention is computed step by step."""
    with mock.patch.dict(FAMILIES, EXTRA):
        trace = trace_of(random_lens(family_of(stack)), stack, TEXT)
    if trace.anatomy.blocks[0].attention.registry:
        trace.lens.model.set_attn_implementation("eager")
    return trace


def tolerance(stack: str) -> float:
    """Some models compute norms, or turn queries and keys, in float32 whatever their weights."""
    family = {**FAMILIES, **EXTRA}[family_of(stack)]
    rounded = family.rounds or family.float32_scores or family.float32_rotary
    return 3e-6 if rounded else 1e-9


softmax = nn.functional.softmax


def unrounded(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """The softmax in the precision of its input, where models ask for float32."""
    return softmax(x, dim=dim)


def first_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What a module reads, however it is handed over."""
    return args[0] if args else next(iter(kwargs.values()))


def rerun(trace: prosect.Trace, start: int, x: Tensor) -> list[Tensor]:
    """The hidden states after ``start`` of the model itself, with ``x`` [copy, token, d] put there."""
    anatomy, states = trace.anatomy, []

    def enter(module: nn.Module, args: Any, kwargs: Any) -> Any:
        states.append(first_of(args, kwargs))
        if len(states) - 1 != start:
            return None
        if args:
            return (x, *args[1:]), kwargs
        return args, {**kwargs, next(iter(kwargs)): x}

    def leave(module: nn.Module, args: Any) -> None:
        states.append(args[0])

    inputs: dict[str, Any] = {"input_ids": torch.tensor([[t.id for t in trace.tokens]] * len(x))}
    if trace.encoder is not None:
        read = trace.encoder.hidden[-1]
        inputs["encoder_hidden_states"] = read.expand(len(x), *read.shape)
    if anatomy.causal:
        inputs["use_cache"] = False
    with ExitStack() as hooks:
        hooks.enter_context(mock.patch("torch.nn.functional.softmax", unrounded))
        # layers of ALBERT share modules: each is hooked once, and counted as it is called
        for module in {id(block.module): block.module for block in anatomy.blocks}.values():
            hooks.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
        if anatomy.outlet is not None:
            hooks.callback(anatomy.outlet.register_forward_pre_hook(leave).remove)
        output = anatomy.base(**inputs)
    if anatomy.outlet is None:
        states.append(output.last_hidden_state)
    return states[start + 1 :]


def jacobian_of(
    trace: prosect.Trace, start: int, observe: Callable[[Tensor], list[Tensor]]
) -> Tensor:
    """∂y/∂x of each observed y, [observed, target, d, source, d]: a copy of the text a component."""
    x = trace.hidden[start]
    n, d = x.shape
    copies = x.repeat(n * d, 1, 1).requires_grad_()
    found = []
    for y in observe(copies):
        own = y.flatten(1).diagonal().sum()  # copy c is asked for component c
        (gradient,) = torch.autograd.grad(own, copies, retain_graph=True)
        found.append(gradient.unflatten(0, (n, d)))
    return torch.stack(found).detach()


@cache
def jacobian(stack: str, start: int = 0) -> Tensor:
    """∂ hidden[l] / ∂ hidden[start] for every l > start."""
    trace = traced(stack)
    return jacobian_of(trace, start, lambda x: rerun(trace, start, x))


def assert_norms(found: prosect.Attribution, exact: Tensor, most: float) -> None:
    """Norms equal those of the Jacobian's blocks, relative to the largest of the row."""
    assert found.norms.shape == exact.shape
    gap = (found.norms - exact).abs() / exact.amax(-1, keepdim=True)
    assert float(gap.max()) <= most


def blocks_of(jacobian: Tensor) -> Tensor:
    """|∂e_j/∂x_i|_F, [observed, target, source]."""
    return jacobian.square().sum((-3, -1)).sqrt()


def test_the_reference_runs_the_same_model() -> None:
    for stack in SCORED:
        trace = traced(stack)
        with torch.no_grad():
            states = torch.cat(rerun(trace, 0, trace.hidden[:1].clone()))
        assert states.shape == trace.hidden[1:].shape
        gap = (states - trace.hidden[1:]).abs().max() / trace.hidden.abs().max()
        assert float(gap) <= 1e-5, stack


@pytest.mark.parametrize("stack", SCORED)
def test_exact_attribution_equals_the_jacobian(stack: str) -> None:
    found = traced(stack).attribution()
    exact = blocks_of(jacobian(stack))
    assert_norms(found, exact, tolerance(stack))
    shares = exact / exact.sum(-1, keepdim=True)
    torch.testing.assert_close(found.values, shares, rtol=0, atol=tolerance(stack))
    assert (found.standard_error == 0).all()
    assert found.probes is None


@pytest.mark.parametrize("stack", SCORED)
def test_shares_sum_to_one_and_causal_ones_end_at_the_diagonal(stack: str) -> None:
    trace = traced(stack)
    values = trace.attribution().values
    torch.testing.assert_close(values.sum(-1), torch.ones_like(values[..., 0]))
    if trace.anatomy.causal:
        assert (values.triu(1) == 0).all()
    else:
        assert (values[-1] > 0).all()


LATER = ("bert", "albert-groups", "modernbert", "gemma2", "phi", "t5-decoder", "opt-post-norm")


@pytest.mark.parametrize("stack", LATER)
def test_attribution_starts_from_any_hidden_state(stack: str) -> None:
    trace = traced(stack)
    last = len(trace.anatomy.blocks) - 1
    for start in (1, last):
        found = trace.attribution(start=start)
        assert found.layers == list(range(start, last + 1))
        assert found.start == start
        assert_norms(found, blocks_of(jacobian(stack, start)), tolerance(stack))


@pytest.mark.parametrize("stack", LATER)
def test_times_input_moves_along_the_input(stack: str) -> None:
    trace = traced(stack)
    along = torch.einsum("ltasb,sb->ltsa", jacobian(stack), trace.hidden[0])
    assert_norms(trace.attribution(times_input=True), along.norm(dim=-1), 10 * tolerance(stack))


def test_layers_and_targets_choose_of_all() -> None:
    trace = traced("qwen3")
    everything = trace.attribution()
    found = trace.attribution(layers=[2, 0], targets=[3, -1])
    assert found.layers == [2, 0]
    last = len(trace.tokens) - 1
    torch.testing.assert_close(found.values, everything.values[[2, 0]][:, [3, last]])
    torch.testing.assert_close(found.norms, everything.norms[[2, 0]][:, [3, last]])


HEADS = ("bert", "gpt2", "llama", "gemma2", "olmo2", "phi-normed", "bloom", "gptj", "t5-decoder")


@pytest.mark.parametrize("stack", HEADS)
def test_attribution_of_a_head_equals_autograd_of_what_it_writes(stack: str) -> None:
    trace, layer, head = traced(stack), 1, 2
    attention = trace.anatomy.blocks[layer].attention

    def written(x: Tensor) -> list[Tensor]:
        """What the sublayer writes, only this head free to move."""
        seen: list[Tensor] = []

        def alone(module: nn.Module, args: Any) -> Any:
            parts = list(args[0].unflatten(-1, (attention.heads, -1)).unbind(-2))
            kept = [part if i == head else part.detach() for i, part in enumerate(parts)]
            return (torch.stack(kept, dim=-2).flatten(-2), *args[1:])

        def read(module: nn.Module, args: Any, output: Tensor) -> None:
            seen.append(output if attention.after is None else attention.after.module(output))

        with ExitStack() as hooks:
            output = attention.output.module
            hooks.callback(output.register_forward_pre_hook(alone).remove)
            hooks.callback(output.register_forward_hook(read).remove)
            rerun(trace, 0, x)
        return seen

    found = trace.attribution(head=(layer, head))
    assert found.layers == [layer]
    exact = blocks_of(jacobian_of(trace, 0, written))
    assert_norms(found, exact, tolerance(stack))


def test_the_extra_model_norms_queries_and_keys() -> None:
    scores = traced("phi-normed").anatomy.blocks[0].attention.scores
    assert scores is not None
    assert scores.query_norm is not None
    assert scores.key_norm is not None


@pytest.mark.parametrize("stack", ["mistral", "gpt-neo", "modernbert", "gemma2"])
def test_windows_are_narrower_than_the_text(stack: str) -> None:
    """Or the Jacobians would say nothing of them."""
    trace = traced(stack)
    allowed = torch.ones(len(trace.tokens), len(trace.tokens), dtype=torch.bool)
    allowed = allowed.tril() if trace.anatomy.causal else allowed
    assert (trace.attention[:, :, allowed] == 0).any()


def test_a_source_is_another_text_and_stays() -> None:
    trace = traced("bart-decoder")
    crossing = [record for record in trace.run.stream.attentions if record.term == "source"]
    assert all(record.source_key is not None for record in crossing)
    assert len(crossing) == 3


@pytest.mark.parametrize("family", ["deberta-v2", "deberta-v2-narrow"])
def test_scores_without_a_derivative_are_refused(family: str) -> None:
    trace = random_lens(family).trace(TEXTS[0])
    with pytest.raises(UnsupportedModelError, match="contribution") as refusal:
        trace.attribution(probes=4)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"probes": 1}, "at least 2"),
        ({"probes": 0}, "at least 2"),
        ({"start": 3}, "from 0 to 2"),
        ({"start": -1}, "from 0 to 2"),
        ({"layers": [3]}, "from 0 to 2"),
        ({"layers": [0], "start": 1}, "from 1 to 2"),
        ({"layers": []}, "at least one layer"),
        ({"targets": [99]}, "to 8, got 99"),
        ({"targets": []}, "at least one position"),
        ({"head": (0, 9)}, "got layer 0 and head 9"),
        ({"head": (0, 1), "start": 1}, "at least start = 1, got 0"),
        ({"head": (1, 1), "layers": [1]}, "head and layers cannot both be given"),
        ({"head": 3}, r"such as \(3, 5\), got 3"),
        ({"head": (1, 1.5)}, "head must be an integer, got 1.5"),
        ({"probes": 4, "times_input": True}, "needs no probes"),
        ({"probes": 4.5}, "probes must be an integer, got 4.5"),
        ({"start": 0.5}, "start must be an integer, got 0.5"),
        ({"layers": 1}, "layers must be a list of integers, got 1"),
        ({"layers": ["1"]}, "Every element of layers must be an integer, got '1'"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ProsectError, match=message) as refusal:
        traced("bert").attribution(**options)
    assert "\n" not in str(refusal.value)

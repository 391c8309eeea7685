"""Each map that an anatomy names is the one that the model computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import prosect
from prosect.anatomy.vocabulary import Anatomy, Attention, FeedForward
from prosect.engines.records import AttentionRecord, FeedForwardRecord
from support.families import FAMILIES, PAIRS, STACKS, family_of, random_lens, sample, trace_of
from support.formulas import Attends, model_of


def sublayers(anatomy: Anatomy) -> list[Attention | FeedForward]:
    return [step for step in anatomy.steps() if isinstance(step, Attention | FeedForward)]


def written(trace: prosect.Trace) -> list[AttentionRecord | FeedForwardRecord]:
    """What the sublayers wrote, in the order of the computation."""
    stream = trace.run.stream
    return [step for step in stream if isinstance(step, AttentionRecord | FeedForwardRecord)]


def close(got: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-12) -> bool:
    assert got.shape == expected.shape
    return bool((got - expected).abs().max() <= tolerance * expected.abs().max())


@pytest.mark.parametrize("stack", STACKS)
def test_the_values_are_the_modules_input_times_the_named_columns(stack: str) -> None:
    lens = random_lens(family_of(stack))
    anatomy = lens.anatomy if lens.decoder is None or stack in PAIRS else lens.decoder
    attentions = [step for step in sublayers(anatomy) if isinstance(step, Attention)]
    inputs: list[torch.Tensor] = []

    def keep(_module: object, arguments: tuple[torch.Tensor, ...]) -> None:
        inputs.append(arguments[0].reshape(-1, arguments[0].shape[-1]))

    handles: list[Any] = [
        module.register_forward_pre_hook(keep)
        for module in {step.value.module for step in attentions}
    ]
    trace = trace_of(lens, stack)
    for handle in handles:
        handle.remove()
    if trace.encoder is not None:  # cross-attention reads the encoder's states, self-attention ours
        assert len(inputs) == 2 * len(anatomy.blocks)
    for step, x, record in zip(attentions, inputs, trace.run.stream.attentions, strict=True):
        values = x @ step.value.weight
        if step.value.bias is not None:
            values = values + step.value.bias
        assert close(record.value.transpose(0, 1).flatten(1), values)


@pytest.mark.parametrize("stack", STACKS)
def test_values_weighted_by_attention_are_what_the_output_projection_reads(stack: str) -> None:
    tolerance = 1e-6 if FAMILIES[family_of(stack)].float32_softmax else 1e-12
    for record in sample(stack).run.stream.attentions:
        shared = len(record.alpha) // len(record.value)
        heads = [alpha @ record.value[head // shared] for head, alpha in enumerate(record.alpha)]
        assert close(record.context, torch.cat(heads, -1), tolerance), record.name


@pytest.mark.parametrize("stack", STACKS)
def test_what_a_sublayer_writes_is_its_last_map_of_what_that_map_reads(stack: str) -> None:
    trace = sample(stack)
    steps = sublayers(trace.anatomy)
    for step, record in zip(steps, written(trace), strict=True):
        inner = record.context if isinstance(record, AttentionRecord) else record.neurons
        expected = inner @ step.output.weight
        if step.output.bias is not None:
            expected = expected + step.output.bias
        assert close(record.output, expected), record.name
        assert torch.equal(record.output_map.weight(inner), step.output.weight)


@pytest.mark.parametrize("stack", STACKS)
def test_maps_biases_and_norms_are_those_under_the_familys_own_names(stack: str) -> None:
    """The same weights found a second way, so that a bias that is not named at all is missed."""
    trace = sample(stack)
    plain = [sublayer for layer in model_of(trace).layers for sublayer in layer]
    for step, expected in zip(sublayers(trace.anatomy), plain, strict=True):
        assert step.term == expected.term
        for norm, module in ((step.before, expected.before), (step.after, expected.after)):
            assert (None if norm is None else norm.module) is (
                None if isinstance(module, nn.Identity) else module
            )
        pairs = [(step.output, expected.output)]
        if isinstance(step, Attention):
            assert isinstance(expected, Attends)
            pairs.append((step.value, expected.value))
        for dense, own in pairs:
            assert torch.equal(dense.weight, own.W)
            assert (dense.bias is None) == (own.b is None)
            assert own.b is None or torch.equal(dense.bias, own.b)


@pytest.mark.parametrize("stack", STACKS)
def test_the_bias_of_attention_is_what_it_writes_of_values_that_are_zero(stack: str) -> None:
    """Without its weights a value is its bias alone; what attention then writes is all bias."""
    for step in sublayers(sample(stack).anatomy):
        if not isinstance(step, Attention):
            continue
        width = step.value.weight.shape[1]
        value = torch.zeros(width) if step.value.bias is None else step.value.bias.detach()
        shared = step.heads // step.kv_heads
        context = value.double().view(step.kv_heads, -1).repeat_interleave(shared, dim=0).flatten()
        expected = context @ step.output.weight
        if step.output.bias is not None:
            expected = expected + step.output.bias
        assert (step.bias is None) == (step.value.bias is None and step.output.bias is None)
        if step.bias is not None:
            assert close(step.bias, expected)


def test_every_random_weight_that_adds_to_the_stream_is_far_from_its_default() -> None:
    """Gains of 1 and biases of 0 would hide a part that is left out."""
    every = [(stack, step) for stack in STACKS for step in sublayers(sample(stack).anatomy)]
    for stack, step in every:
        for dense in (step.output, *([step.value] if isinstance(step, Attention) else [])):
            assert dense.bias is None or dense.bias.abs().mean() > 0.1, stack
        for norm in (step.before, step.after):
            gain, bias = (None, None) if norm is None else (norm.gain, norm.bias)
            assert gain is None or (gain - 1).abs().mean() > 0.1, stack
            assert bias is None or bias.abs().mean() > 0.1, stack


def test_gains_are_what_the_norms_multiply_by() -> None:
    for stack in STACKS:
        for step in sample(stack).anatomy.steps():
            norms = [] if isinstance(step, Attention | FeedForward) else [step]
            if isinstance(step, Attention | FeedForward):
                norms = [step.before, step.after]
            for norm in norms:
                if norm is None or not hasattr(norm, "gain"):
                    continue
                x = torch.randn(4, len(norm.gain), dtype=torch.float64)
                if norm.kind == "rms":
                    own = x / (x.square().mean(-1, keepdim=True) + norm.epsilon).sqrt() * norm.gain
                else:
                    centred = x - x.mean(-1, keepdim=True)
                    variance = centred.square().mean(-1, keepdim=True)
                    own = centred / (variance + norm.epsilon).sqrt() * norm.gain + norm.bias
                assert close(norm.module(x), own, 1e-6), stack

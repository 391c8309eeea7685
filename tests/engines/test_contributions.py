"""Contributions of input tokens through all layers, and rollout of maps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import prosect
from prosect.engines.contributions import contributions, rest_of, rollout
from support import plain
from support.families import FAMILIES, PAIRS, TEXTS, random_lens

BASELINES = ("zero", "bias")


def parts_of(trace: prosect.Trace, baseline: Any = "zero", block: int = 8) -> tuple[Tensor, Tensor]:
    """[layer+1, source, target, d], and the rest [layer+1, target, d]."""
    stream = trace.run.stream
    rest, _ = rest_of(stream, baseline)
    n = len(trace.tokens)
    blocks = [torch.stack(states) for _, states in contributions(stream, range(n), baseline, block)]
    return torch.cat(blocks, dim=1), torch.stack(rest)


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("family", FAMILIES)
def test_contributions_and_rest_sum_to_every_hidden_state(family: str, baseline: str) -> None:
    lens = random_lens(family)
    traces = [lens.trace(TEXTS[0])]
    if family in PAIRS:
        traces.append(lens.trace(TEXTS[0], target=TEXTS[1]))
    for trace in traces:
        parts, rest = parts_of(trace, baseline)
        gap = (parts.sum(1) + rest - trace.hidden).norm(dim=-1) / trace.hidden.norm(dim=-1)
        assert gap.max() < (1e-6 if FAMILIES[family].rounds else 1e-10)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "mistral", "t5", "bart", "gptj"])
def test_blocks_of_sources_do_not_show(family: str) -> None:
    trace = random_lens(family).trace(TEXTS[0])
    expected, _ = parts_of(trace, block=8)
    for block in (1, 5, 100):
        found, _ = parts_of(trace, block=block)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_chosen_sources_are_those_asked_for() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    every, _ = parts_of(trace)
    ((sources, states),) = contributions(trace.run.stream, [7, 2])
    assert sources == [7, 2]
    torch.testing.assert_close(torch.stack(states), every[:, [7, 2]])


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("family", ["bert", "gpt2", "gptj", "llama", "gemma2"])
def test_contributions_equal_parts_pushed_plainly_through_the_layers(
    family: str, baseline: str
) -> None:
    trace = random_lens(family).trace(TEXTS[0])
    parts, rest = parts_of(trace, baseline)
    model: Any = trace.lens.model
    if family == "bert":
        e = model.base_model.embeddings
        norm = plain.Norm(e.LayerNorm.weight.detach(), e.LayerNorm.bias.detach(), e.LayerNorm.eps)
        ids = trace.lens.tokenizer(TEXTS[0], return_tensors="pt").input_ids[0]
        summed = e.word_embeddings.weight[ids] + e.token_type_embeddings.weight[0]
        summed = (summed + e.position_embeddings.weight[: len(ids)]).detach()
        start = norm.split((plain.alone(summed), torch.zeros_like(summed)))
    else:
        start = plain.alone(trace.hidden[0]), torch.zeros_like(trace.hidden[0])
    expected = plain.contributions(trace, start, baseline)
    if family != "bert":  # the last hidden state is after the final norm
        base = model.base_model
        final = base.norm if hasattr(base, "norm") else base.ln_f
        gain = final.weight.detach() + (1 if family == "gemma2" else 0)
        kind = {"epsilon": getattr(final, "eps", None) or final.variance_epsilon}
        centred = hasattr(final, "bias")
        bias = final.bias.detach() if centred else 0.0
        expected[-1] = plain.Norm(gain, bias, centred=centred, **kind).split(expected[-1])
    for layer, (expected_parts, expected_rest) in enumerate(expected):
        assert plain.gap(parts[layer], expected_parts) < 1e-6
        assert plain.gap(rest[layer], expected_rest) < 1e-6
        if layer:
            found = trace.map("contribution", baseline=baseline)
            assert plain.gap(found.values[layer - 1], plain.lengths(expected_parts)) < 1e-6
            assert found.rest is not None
            assert plain.gap(found.rest[layer - 1], expected_rest.norm(dim=-1)) < 1e-6


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("llama", "ATBLNFFRES"),
        ("t5", "ATBLNFFRES"),
        ("olmo2", "ATBFFLNRES"),
        ("marian", "ATBFFRESLN"),
    ],
)
def test_through_one_layer_they_are_the_map_of_that_layer(family: str, kind: str) -> None:
    """Where nothing comes before it, and norms in front of attention have no bias.

    A map of one layer takes its input tokens as they are; biases that a token's part meets on its
    way to the values are the rest's here, and the token's there.
    """
    trace = random_lens(family).trace(TEXTS[0])
    whole, layer = trace.map("contribution"), trace.map(kind, value_bias=False)
    torch.testing.assert_close(whole.values[0], layer.values[0], rtol=1e-6, atol=1e-9)
    assert whole.rest is not None
    assert layer.rest is not None
    torch.testing.assert_close(whole.rest[0], layer.rest[0], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(whole.mixing()[0], layer.mixing()[0], rtol=1e-6, atol=1e-7)


def test_own_and_others_are_lengths_of_sums_of_contributions() -> None:
    trace = random_lens("gpt2").trace(TEXTS[0])
    parts, _ = parts_of(trace)
    found = trace.map("contribution")
    assert found.own is not None
    assert found.others is not None
    for layer in range(1, len(parts)):
        own = parts[layer].diagonal().T
        torch.testing.assert_close(found.own[layer - 1], own.norm(dim=-1))
        others = (parts[layer].sum(0) - own).norm(dim=-1)
        torch.testing.assert_close(found.others[layer - 1], others, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("residual", [0.0, 0.3, 0.5, 1.0])
def test_rollout_is_the_product_of_the_layers_maps(residual: float) -> None:
    torch.manual_seed(0)
    maps = torch.rand(3, 4, 4, dtype=torch.float64)
    plainly = []
    for layer in maps:
        rows = layer / layer.sum(1, keepdim=True)
        mixed = (1 - residual) * rows + residual * torch.eye(4).double()
        plainly.append(mixed @ plainly[-1] if plainly else mixed)
    found = rollout(maps, residual)
    torch.testing.assert_close(found, torch.stack(plainly))
    torch.testing.assert_close(found.sum(-1), torch.ones(3, 4).double())

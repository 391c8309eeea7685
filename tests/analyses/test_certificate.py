"""Attribution and value zeroing are held against the model itself, and a wrong engine is caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import prosect
from prosect.engines import tangents, zeroing
from prosect.engines.linear import through_norm
from prosect.engines.records import AttentionRecord, NormRecord
from prosect.errors import ReconstructionError
from support.families import FAMILIES, STACKS, TEXTS, family_of, random_lens, sample, trace_of

SCORED = [stack for stack in STACKS if FAMILIES[family_of(stack)].known_scores]


def exact(stack: str, dtype: torch.dtype) -> float:
    """How near the model itself must be; some compute norms or rotations in float32 in any case."""
    if dtype == torch.float32:
        return 1e-4
    family = FAMILIES[family_of(stack)]
    rounds = family.rounds or family.float32_scores or family.float32_rotary
    return 1e-6 if rounds else 1e-10


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("stack", SCORED)
def test_attribution_is_certified_by_the_model(stack: str, dtype: torch.dtype) -> None:
    found = sample(stack, dtype).attribution(probes=2)
    assert 0 < found.error <= exact(stack, dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("stack", STACKS)
def test_value_zeroing_is_certified_by_the_model(stack: str, dtype: torch.dtype) -> None:
    found = sample(stack, dtype).map("value_zeroing")
    assert 0 < found.error <= exact(stack, dtype)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_certificates_in_half_precision_are_wider(family: str) -> None:
    for dtype, most in ((torch.float16, 2e-2), (torch.bfloat16, 1e-1)):
        trace = sample(family, dtype)
        for error in (trace.attribution(probes=2).error, trace.map("value_zeroing").error):
            assert 1e-4 < error < most


def test_the_map_has_the_error_of_the_attribution() -> None:
    trace = sample("gpt2")
    assert trace.map("attribution").error == trace.attribution().error > 0
    assert trace.attribution(head=(1, 2), times_input=True).error == trace.attribution().error
    later = trace.attribution(probes=2, start=1)
    assert 0 < later.error <= 1e-10
    assert later.at([0]).error == later.after([2]).error == later.error


def test_the_model_is_differentiated_once_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    from prosect.analyses import attribution

    trace, calls = random_lens("bert").trace(TEXTS[0]), []
    own = attribution.derivative

    def counted(*args: Any) -> Tensor:
        calls.append(args[2])
        return own(*args)

    monkeypatch.setattr(attribution, "derivative", counted)
    for seed in range(3):
        trace.attribution(probes=2, seed=seed)
        trace.attribution(probes=2, start=1, seed=seed)
    assert calls == [0, 1]


Step = Callable[..., Any]


def without_softmax(own: Step) -> Step:
    def tangent(dx: Tensor, record: AttentionRecord, *others: Any) -> Tensor:
        assert record.scores is not None
        return own(dx, replace(record, scores=replace(record.scores, scale=0.0)), *others)

    return tangent


def steeper(own: Step) -> Step:
    return lambda g, x: 1.01 * own(g, x)


def with_frozen_spread(own: Step) -> Step:
    return lambda dx, x, norm: through_norm(dx, norm)


def without_mean(own: Step) -> Step:
    def tangent(dx: Tensor, x: Tensor, norm: NormRecord) -> Tensor:
        return own(dx, x, replace(norm, rule=replace(norm.rule, centred=False)))

    return tangent


WRONG_TANGENTS: dict[str, tuple[str, Callable[[Step], Step]]] = {
    "no derivative of the softmax": ("attention_tangent", without_softmax),
    "a slope one percent too steep": ("slope", steeper),
    "the spread of norms frozen": ("norm_tangent", with_frozen_spread),
    "the mean of norms left out": ("norm_tangent", without_mean),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("stack", ["bert", "gpt2", "bart-decoder"])
@pytest.mark.parametrize("wrong", WRONG_TANGENTS)
def test_a_wrong_derivative_is_caught(
    wrong: str, stack: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, spoil = WRONG_TANGENTS[wrong]
    trace = trace_of(random_lens(family_of(stack), dtype), stack)
    monkeypatch.setattr(tangents, name, spoil(getattr(tangents, name)))
    with pytest.raises(ReconstructionError, match="derivative differs from that of the model"):
        trace.attribution(probes=2)
    with pytest.raises(ReconstructionError, match="derivative differs from that of the model"):
        trace.map("attribution")


def without_value_bias(own: Step) -> Step:
    return lambda attention: own(attention, False)


def with_frozen_norms(own: Step) -> Step:
    return lambda x, rule: x if rule.gain is None else x * rule.gain


def of_the_first_head(own: Step) -> Step:
    return lambda layer, source, kv_head: own(layer, source, 0)


WRONG_ZEROING: dict[str, tuple[str, Callable[[Step], Step], str]] = {
    "the bias of the values left": ("parts_of_attention", without_value_bias, "bert"),
    "norms not computed anew": ("normed", with_frozen_norms, "bert"),
    "a feed-forward left out": ("feed_forward", lambda own: lambda x, _: x, "gpt2"),
    "the values of another head": ("silenced", of_the_first_head, "llama"),
}


@pytest.mark.parametrize("wrong", WRONG_ZEROING)
def test_wrong_value_zeroing_is_caught(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, spoil, family = WRONG_ZEROING[wrong]
    trace = random_lens(family, torch.float32).trace(TEXTS[0])
    monkeypatch.setattr(zeroing, "strongest", lambda layer: (2, 1))
    monkeypatch.setattr(zeroing, name, spoil(getattr(zeroing, name)))
    with pytest.raises(ReconstructionError, match="set to zero differs from that of the model"):
        trace.map("value_zeroing")


@pytest.mark.parametrize("kind", ["attribution", "value_zeroing"])
def test_what_a_hook_changes_does_not_stay_unseen(kind: str) -> None:
    """A hook is in no weight: maps computed from weights would be of another model."""
    lens = random_lens("bert")
    output: Any = lens.model.bert.encoder.layer[1].intermediate.dense
    handle = output.register_forward_hook(lambda _m, _a, y: 1.1 * y)
    trace = lens.trace(TEXTS[0])
    with pytest.raises(ReconstructionError, match="differs from that of the model itself"):
        trace.map(kind)
    handle.remove()
    assert lens.trace(TEXTS[0]).map(kind).error <= 1e-10


def test_a_failed_certificate_says_by_how_much_in_one_sentence() -> None:
    lens = random_lens("gpt2", torch.float32)
    lens.model.transformer.h[0].mlp.c_fc.register_forward_hook(lambda _m, _a, y: 2 * y)
    with pytest.raises(prosect.ReconstructionError, match=r"by \d\.\de[-+]\d\d \(relative\)") as it:
        lens.trace(TEXTS[0]).attribution(probes=2)
    assert "\n" not in str(it.value)

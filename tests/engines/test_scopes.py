"""Maps of one layer, held against n × n × d vectors, one by one, and integrals by quadrature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

import prosect
from prosect.analyses.kinds import Kind
from prosect.engines import scopes
from prosect.engines.records import FeedForwardRecord, LayerRecord
from prosect.engines.scopes import scopes_of
from support import plain
from support.families import FAMILIES, PAIRS, SIZES, TEXTS, random_lens, word_pieces

BASELINES = ("zero", "bias")
RIVER = "The bank raised its rates, so we walked along the river bank to watch the ducklings swim."
SPLITTING = {"norm", "contribution"}
"""Kinds that split vectors, beside the scopes."""


def exact(family: str, dtype: torch.dtype) -> float:
    """How exactly parts must add up, relatively."""
    if dtype == torch.float32:
        return 1e-5
    return 1e-6 if FAMILIES[family].rounds else 1e-10


def traces_of(family: str, dtype: torch.dtype = torch.float64) -> list[prosect.Trace]:
    """One trace of a family, and one of its decoder where it has an encoder beside it."""
    lens = random_lens(family, dtype)
    traces = [lens.trace(TEXTS[0])]
    if family in PAIRS:
        traces.append(lens.trace(TEXTS[0], target=TEXTS[1]))
    return traces


def layers(trace: prosect.Trace) -> list[LayerRecord]:
    return trace.run.stream.layers


def scope_kinds(trace: prosect.Trace) -> list[str]:
    return [name for name in trace.kinds if name.startswith("AT")]


def choices(kind: Kind) -> list[dict[str, Any]]:
    """Every choice of the options that a kind takes."""
    values = {"baseline": BASELINES, "value_bias": (True, False)}
    names = [name for name in values if name in kind.options]
    found = product(*(values[name] for name in names))
    return [dict(zip(names, chosen, strict=True)) for chosen in found]


# --- completeness ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_parts_and_rest_are_what_the_model_computed(family: str, dtype: torch.dtype) -> None:
    for trace in traces_of(family, dtype):
        for kind in [*scope_kinds(trace), *SPLITTING]:
            for options in choices(trace.kinds[kind]):
                found = trace.map(kind, **options)
                assert found.error <= exact(family, dtype), (kind, options)
                assert torch.isfinite(found.values).all()
                assert (found.values >= 0).all()


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_parts_and_rest_of_real_weights_are_what_the_model_computed(
    text: str, dtype: torch.dtype, most: float
) -> None:
    trace = prosect.load(dtype=dtype).trace(text)
    for kind in [*scope_kinds(trace), *SPLITTING]:
        for options in choices(trace.kinds[kind]):
            assert trace.map(kind, **options).error <= most


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "gemma2", "gptj"])
def test_the_error_is_the_gap_between_materialised_parts_and_the_output(
    family: str, baseline: Any
) -> None:
    """Outputs that are off by a known vector have the error that this vector has by the formulas."""
    trace = random_lens(family).trace(TEXTS[0])
    layer, number = layers(trace)[0], 0
    torch.manual_seed(1)
    off = [0.01 * torch.randn_like(layer.x) for _ in range(2)]
    attention = replace(layer.attention, output=layer.attention.output + off[0])
    following = tuple(
        replace(record, output=record.output + off[1])
        if isinstance(record, FeedForwardRecord)
        else record
        for record in layer.following
    )
    broken = replace(layer, attention=attention, following=following, y=None)
    w = plain.weights_of(trace.lens.model, number)
    parts = plain.scopes(w, layer.x, trace.attention[number], baseline=baseline)
    expected = _gaps(w, parts, *off)
    found = scopes_of(broken, baseline=baseline)
    assert list(found) == list(expected)
    for name, scope in found.items():
        assert scope.error == pytest.approx(expected[name], rel=1e-4), name


def _gaps(w: Any, parts: dict[str, plain.Split], attended: Tensor, fed: Tensor) -> dict[str, float]:
    """The gap of each scope if attention's and the feed-forward's outputs are off by known vectors."""
    wholes = {name: split[0].sum(0) + split[1] for name, split in parts.items()}
    off: dict[str, Tensor] = {}
    before, at, block = "", attended, attended
    for name in parts:
        added = name.removeprefix(before)
        if name == "ATB":
            at = at if w.middle is None else w.middle.of_a_part(at, wholes["ATTNRES"])
            block = at
        elif added == "FF":
            at = block + fed if w.parallel else fed
        elif name == "ATTNLN":
            at = w.after_attention.of_a_part(at, wholes["ATTN"])
        elif name == "ATBLN":
            at = w.before_feed_forward.of_a_part(at, wholes["ATB"])
        elif added == "LN":
            norm = w.after_feed_forward if before.endswith("FF") else w.end
            at = norm.of_a_part(at, wholes[before])
        elif added == "RES" and name != "ATTNRES":
            at = at + block
        off[name], before = at, name
    return {
        # the scope's output is off too
        name: float((at.norm(dim=-1) / (wholes[name] + at).norm(dim=-1)).max())
        for name, at in off.items()
    }


@pytest.mark.parametrize("family", ["bert", "gpt2", "gptj"])
def test_a_layer_whose_output_is_changed_behind_its_parts_is_refused(family: str) -> None:
    lens = random_lens(family)
    block = lens.anatomy.blocks[1].module
    dropout = {"bert": lambda: block.output.dropout}.get(family, lambda: block.mlp.dropout)()
    dropout.register_forward_hook(lambda _m, _a, output: output + 0.5 * output.roll(1, -1))
    trace = lens.trace(TEXTS[0])
    last = scope_kinds(trace)[-1]
    with pytest.raises(prosect.ReconstructionError, match=f"The parts of the map {last} miss"):
        trace.map(last)
    with pytest.raises(prosect.ReconstructionError, match="The parts of the map contribution miss"):
        trace.map("contribution")


# --- values ---------------------------------------------------------------------------------------


@cache
def bert_with(activation: str) -> prosect.Trace:
    """A BERT with another activation, weights as random as elsewhere."""
    family = replace(FAMILIES["bert"], options={"hidden_act": activation})
    torch.manual_seed(3)
    model = family.make().double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.3)
            if "LayerNorm.weight" in name:
                parameter.add_(1.0)
    return prosect.Lens(model, word_pieces(), name=activation).trace(TEXTS[0])


def _demo() -> prosect.Trace:
    return prosect.load(dtype=torch.float64).trace(RIVER)


PLAIN: dict[str, Callable[[], prosect.Trace]] = {
    **{f"bert, {g}": lambda g=g: bert_with(g) for g in ("gelu", "relu", "silu", "gelu_new")},
    "bert, quick_gelu": lambda: bert_with("quick_gelu"),
    **{
        family: lambda family=family: random_lens(family).trace(TEXTS[0])
        for family in ("gpt2", "llama", "gptj", "gemma2")
    },
    "MiniLM": _demo,
}


def _options(name: str) -> list[dict[str, Any]]:
    """What to hold against quadrature; ReLU from a bias has a kink, and the demo is not small."""
    if name == "MiniLM":
        return [{}]
    both = [
        {"baseline": baseline}
        for baseline in BASELINES
        if name != "bert, relu" or baseline == "zero"
    ]
    return [*both, {"value_bias": False}]


@pytest.mark.parametrize("name", PLAIN)
def test_every_scope_equals_plain_code(name: str) -> None:
    trace = PLAIN[name]()
    chosen = [0, 2] if name == "MiniLM" else range(len(trace.anatomy.blocks))
    for options in _options(name):
        found = {
            kind: trace.map(
                kind, **{o: options[o] for o in trace.kinds[kind].options if o in options}
            )
            for kind in scope_kinds(trace)
        }
        for number in chosen:
            w = plain.weights_of(trace.lens.model, number)
            expected = plain.scopes(w, trace.hidden[number], trace.attention[number], **options)
            assert list(expected) == list(found)
            for kind, (parts, rest) in expected.items():
                one = found[kind]
                assert one.rest is not None
                assert one.own is not None
                assert one.others is not None
                assert plain.gap(one.values[number], plain.lengths(parts)) < 1e-6, kind
                assert plain.gap(one.rest[number], rest.norm(dim=-1)) < 1e-6, kind
                own = parts.diagonal().T
                assert plain.gap(one.own[number], own.norm(dim=-1)) < 1e-6, kind
                others = (parts.sum(0) - own).norm(dim=-1)
                assert plain.gap(one.others[number], others) < 1e-6, kind


def test_the_plain_parts_sum_to_what_the_models_own_modules_return() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    model = trace.lens.model
    layer = model.base_model.encoder.layer[1]
    modules = {
        "ATTN": layer.attention.output.dense,
        "ATB": layer.attention.output,
        "ATBFF": layer.output.dense,
        "ATBFFRESLN": layer.output,
    }
    seen: dict[str, Tensor] = {}
    for name, module in modules.items():
        module.register_forward_hook(lambda _m, _a, out, name=name: seen.update({name: out[0]}))
    with torch.no_grad():
        model(**trace.lens.tokenizer(TEXTS[0], return_tensors="pt"))
    for value_bias in (True, False):
        for baseline in BASELINES:
            found = plain.scopes(
                plain.weights_of(model, 1),
                trace.hidden[1],
                trace.attention[1],
                value_bias=value_bias,
                baseline=baseline,
            )
            for name, real in seen.items():
                parts, rest = found[name]
                assert plain.gap(parts.sum(0) + rest, real) < 1e-10, name


@pytest.mark.parametrize("family", ["gpt2", "llama", "gptj", "gemma2"])
def test_the_plain_parts_sum_to_the_next_hidden_state(family: str) -> None:
    trace = random_lens(family).trace(TEXTS[0])
    w = plain.weights_of(trace.lens.model, 0)
    *_, (parts, rest) = plain.scopes(w, trace.hidden[0], trace.attention[0]).values()
    assert plain.gap(parts.sum(0) + rest, trace.hidden[1]) < 1e-6


@pytest.mark.parametrize("value_bias", [True, False])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "gptj", "gemma2"])
def test_the_norm_of_a_head_is_the_length_of_weight_times_value(
    family: str, value_bias: bool
) -> None:
    trace = random_lens(family).trace(TEXTS[0])
    found = trace.map("norm", value_bias=value_bias)
    for number, alpha in enumerate(trace.attention):
        w = plain.weights_of(trace.lens.model, number)
        heads = plain.sent_by_tokens(w, trace.hidden[number], alpha, value_bias)
        for head, (parts, _) in enumerate(heads):
            assert plain.gap(found.values[number, head], plain.lengths(parts)) < 1e-6


@pytest.mark.parametrize("family", ["bert", "gpt2", "gptj", "gemma2"])
def test_alti_is_the_share_of_l1_distance_that_each_part_covers(family: str) -> None:
    trace = random_lens(family).trace(TEXTS[0])
    number = 1
    w = plain.weights_of(trace.lens.model, number)
    expected = plain.scopes(w, trace.hidden[number], trace.attention[number])
    for kind, (parts, rest) in expected.items():
        found = trace.map(kind, measure="alti").values[number]
        torch.testing.assert_close(found.sum(-1), torch.ones(len(found)).double())
        assert plain.gap(found, plain.alti(parts, parts.sum(0) + rest)) < 1e-6


def test_the_maps_of_the_river_sentence_are_those_computed_for_it() -> None:
    trace = _demo()
    expected = {"ATB": 0.411, "ATBFF": 0.548, "ATBFFRES": 0.406, "ATBFFRESLN": 0.409}
    for kind, mixing in expected.items():
        values = trace.map(kind).values[2]
        shares = 1 - values.diagonal().abs() / values.abs().sum(-1)
        assert float(shares.mean()) == pytest.approx(mixing, abs=1e-3), kind


# --- the same result however it is computed -------------------------------------------------------


@pytest.mark.parametrize("measure", ["norm", "alti"])
@pytest.mark.parametrize("family", ["bert", "llama", "gemma2", "gptj"])
def test_blocks_of_targets_do_not_show(
    family: str, measure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lens = random_lens(family)
    text = " ".join(TEXTS[:2])
    whole = lens.trace(text)
    n = len(whole.tokens)
    expected = {kind: whole.map(kind, measure=measure) for kind in scope_kinds(whole)}
    for block in (
        1,
        n * SIZES["d_ff"] * 7,
    ):  # one target at a time; seven, which do not divide them evenly
        monkeypatch.setattr(scopes, "BLOCK", block)
        again = lens.trace(text)
        for kind, one in expected.items():
            other = again.map(kind, measure=measure)
            assert other.error < 1e-6
            for a, b in (
                (one.values, other.values),
                (one.rest, other.rest),
                (one.own, other.own),
                (one.others, other.others),
            ):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_a_long_text_is_complete_and_its_blocks_do_not_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=400,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=512,
    )
    lens = prosect.Lens(BertModel(config).eval(), word_pieces(), name="long")
    text = "a" + "," * 509
    trace = lens.trace(text)
    assert len(trace.tokens) == 512
    expected = trace.map("ATBFFRESLN")
    assert expected.error < 1e-5
    monkeypatch.setattr(scopes, "BLOCK", 512 * 64 * 33)
    found = lens.trace(text).map("ATBFFRESLN")
    torch.testing.assert_close(found.values, expected.values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "gemma2", "gptj"])
def test_float32_and_float64_agree(family: str) -> None:
    lens = random_lens(family, torch.float32)
    narrow = lens.trace(TEXTS[0])
    narrow_maps = {kind: narrow.map(kind).values for kind in narrow.kinds}
    lens.model.double()
    wide = lens.trace(TEXTS[0])
    for kind in wide.kinds:
        a, b = narrow_maps[kind], wide.map(kind).values
        assert a.dtype == torch.float32
        assert plain.gap(a, b) < 2e-4, kind

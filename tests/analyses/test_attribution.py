"""Hidden Token Attribution as a result: what it says of a text, on real weights and by construction."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import prosect
from prosect.analyses import attribution
from prosect.analyses.attribution import Attribution
from support.families import FAMILIES, TEXTS, random_lens, random_model

BANK = "The bank raised its rates, so we walked along the river bank to watch the ducks swim."
SHORT = "The river bank, the road."


@cache
def traced(family: str) -> prosect.Trace:
    return random_lens(family).trace(SHORT)


def built(values: Tensor, targets: list[int] | None = None) -> Attribution:
    places = list(range(values.shape[1])) if targets is None else targets
    layers = list(range(len(values)))
    return Attribution(values, values, torch.zeros_like(values), layers, places, None, 0, 0.0)


LAYER = torch.tensor(
    [[0.4, 0.3, 0.2, 0.1], [0.3, 0.5, 0.1, 0.1], [0.6, 0.1, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]]
)
MADE = built(torch.stack([LAYER, torch.eye(4)]))


def test_own_is_the_mean_of_the_diagonal() -> None:
    assert MADE.own().tolist() == pytest.approx([1.5 / 4, 1.0])


def test_shares_by_distance_sum_to_one() -> None:
    found = MADE.by_distance(2)
    # one apart: .3, .3 + .1, .1 + .1, .3; two or more: .2 + .1, .1, .6, .1 + .2
    assert found[0].tolist() == pytest.approx([1.5 / 4, 1.2 / 4, 1.3 / 4])
    assert found[1].tolist() == [1.0, 0.0, 0.0]
    far = MADE.by_distance()
    assert far.shape == (2, 11)
    torch.testing.assert_close(far.sum(-1), torch.ones(2))
    assert far[0, 3:].tolist() == pytest.approx([0.2 / 4, *[0.0] * 7])


def test_overtaken_tokens_are_not_their_own_largest_contributor() -> None:
    assert MADE.overtaken().tolist() == [0.25, 0.0]


def test_local_is_of_what_the_others_contribute() -> None:
    expected = (0.3 / 0.6 + 0.4 / 0.5 + 0.2 / 0.8 + 0.3 / 0.6) / 4
    assert MADE.local(1).tolist() == pytest.approx([expected, 0.0])
    assert MADE.local(3).tolist() == pytest.approx([1.0, 0.0])


def test_chosen_targets_stay_where_they_are() -> None:
    found = MADE.at([2, 0])
    assert found.targets == [2, 0]
    assert torch.equal(found.values, MADE.values[:, [2, 0]])
    assert found.own().tolist() == pytest.approx([0.3, 1.0])
    assert found.overtaken().tolist() == [0.5, 0.0]
    assert found.by_distance(1)[0].tolist() == pytest.approx([0.3, 0.7])
    assert found.local(1).tolist()[0] == pytest.approx((0.2 / 0.8 + 0.3 / 0.6) / 2)
    assert found.at([0]).own().tolist() == pytest.approx([0.4, 1.0])


def test_repr_says_how() -> None:
    assert repr(MADE) == "Attribution(exact: layer 2, target 4, source 4, error 0.0e+00)"
    assert "16 probes" in repr(traced("bert").attribution(probes=16))
    trace = random_lens("gpt2").trace("a river")
    found = trace.attribution(head=(2, 1), times_input=True)
    assert repr(found).startswith("Attribution(exact, times input, head 1 of layer 2: layer 1,")


def test_targets_and_distances_that_are_not_there_are_refused() -> None:
    with pytest.raises(prosect.ProsectError, match="targets must be among 0, 1,"):
        MADE.at([-1])
    with pytest.raises(prosect.ProsectError, match="targets must be a list of integers, got 1"):
        MADE.at(1)
    with pytest.raises(prosect.ProsectError, match="furthest must be at least 0, got -1"):
        MADE.by_distance(-1)
    with pytest.raises(prosect.ProsectError, match="seed must be an integer, got 'a'"):
        traced("bert").attribution(2, seed="a")


def test_what_is_known_of_all_layers_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = random_lens("bert").trace(SHORT)
    exact = trace.map("attribution").values

    def again(*_: Any, **__: Any) -> Any:
        raise AssertionError("computed again")

    monkeypatch.setattr("prosect.analyses.attribution.attribute", again)
    assert torch.equal(trace.attribution(progress=True).values, exact)
    found = trace.attribution(layers=[2, 1], targets=[3])
    assert (found.layers, found.targets) == ([2, 1], [3])
    assert torch.equal(found.values, exact[[2, 1]][:, [3]])


def test_the_map_is_the_exact_attribution() -> None:
    trace = traced("llama")
    found = trace.map("attribution")
    assert found.axes == ("layer", "target", "source")
    assert torch.equal(found.values, trace.attribution().values)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_standard_errors_cover_the_exact_share_as_often_as_they_claim(family: str) -> None:
    """95 % intervals of 16 probes (15 degrees of freedom), over ten seeds."""
    trace = traced(family)
    truth = trace.attribution().values
    seen = torch.ones_like(truth[0]).tril() > 0 if trace.anatomy.causal else truth[0] > -1
    rates = []
    for seed in range(10):
        found = trace.attribution(probes=16, seed=seed)
        inside = (found.values - truth).abs() <= 2.131 * found.standard_error + 1e-12
        rates.append(inside[:, seen].double().mean())
        assert found.probes == 16
    assert 0.88 <= float(torch.stack(rates).mean()) <= 0.99


def test_many_probes_are_near_the_exact_value() -> None:
    trace = traced("bert")
    found, truth = trace.attribution(probes=400), trace.attribution()
    off = (found.values - truth.values) / found.standard_error
    assert float(off.abs().max()) <= 5
    assert float(off.square().mean()) == pytest.approx(1.0, abs=0.5)
    assert float((found.values / truth.values - 1).abs().median()) < 0.03


def test_seeds_make_probes_repeatable() -> None:
    trace = traced("gpt2")
    first = trace.attribution(probes=4, seed=5).values
    assert torch.equal(first, random_lens("gpt2").trace(SHORT).attribution(4, seed=5).values)
    assert not torch.equal(first, trace.attribution(probes=4, seed=6).values)


@pytest.mark.parametrize("family", ["bert", "gemma3"])
def test_single_precision_gives_the_same_shares(family: str) -> None:
    model, tokenizer = random_model(family, torch.float32), FAMILIES[family].tokenizer()
    single = prosect.Lens(model, tokenizer).trace(SHORT).attribution().values
    double = prosect.Lens(model.double(), tokenizer).trace(SHORT).attribution().values
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-4)
    half = random_lens(family, torch.bfloat16).trace(SHORT).attribution().values
    assert half.dtype == torch.float32
    assert torch.isfinite(half).all()


def test_own_shares_of_minilm_fade_with_depth() -> None:
    trace = prosect.load("minilm").trace(BANK)
    assert len(trace.tokens) == 21
    found = trace.attribution(probes=32)
    own = found.own()
    # the standard error of the mean over tokens, whose probes are independent of each other
    error = found.standard_error.diagonal(dim1=-2, dim2=-1).square().sum(-1).sqrt() / 21
    assert float(error.max()) < 0.002
    assert own[[0, 2, 5]].tolist() == pytest.approx([0.45, 0.28, 0.19], abs=0.006)
    assert (own.diff() < 0).all()


@pytest.mark.parametrize("probes", [None, 4])
def test_an_interrupted_attribution_leaves_trace_and_model_usable(
    probes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lens = random_lens("bert")
    trace, expected = lens.trace(SHORT), traced("bert").attribution(probes).values
    before = states_of(lens)
    push, calls = attribution.push, []

    def stopped(*args: Any) -> Any:
        for moved in push(*args):
            calls.append(moved)
            if len(calls) == 2:  # in the second block
                raise KeyboardInterrupt
            yield moved

    with monkeypatch.context() as patched:
        patched.setattr("prosect.analyses.attribution.push", stopped)
        with pytest.raises(KeyboardInterrupt):
            trace.attribution(probes, progress=True)
    assert states_of(lens) == before
    torch.testing.assert_close(trace.attribution(probes).values, expected, rtol=0, atol=0)
    assert torch.equal(lens.trace(SHORT).hidden, trace.hidden)


def test_an_interrupted_trace_leaves_the_model_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    """From within a block, in the middle of the model's own computation."""
    lens = random_lens("bert")
    expected, before = lens.trace(SHORT).hidden, states_of(lens)
    block: Any = lens.anatomy.blocks[1].module

    def stopped(x: Tensor) -> Tensor:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(block.intermediate.intermediate_act_fn, "forward", stopped)
        with pytest.raises(KeyboardInterrupt):
            lens.trace(SHORT)
    assert states_of(lens) == before
    assert torch.equal(lens.trace(SHORT).hidden, expected)


def states_of(lens: prosect.Lens) -> list[object]:
    """Whatever a run could leave behind in a model."""
    modules = list(lens.model.modules())
    return [
        lens.model.config._attn_implementation,
        [module.training for module in modules],
        [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in modules],
        [parameter.requires_grad for parameter in lens.model.parameters()],
        torch.is_grad_enabled(),
    ]


@pytest.mark.parametrize(("progress", "shown"), [(True, True), (False, False), (None, False)])
def test_a_bar_counts_the_tangents(
    progress: bool | None, shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """By itself it appears only after seconds, which this text does not take."""
    trace = random_lens("bert").trace(SHORT)
    trace.attribution(probes=2, progress=progress)
    count = 2 * len(trace.tokens)
    assert (f"{count}/{count}" in capsys.readouterr().err) == shown


def test_a_bar_appears_by_itself_where_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("prosect.analyses.attribution.BAR_DELAY", 1e-9)
    count = random_lens("bert").trace(SHORT).hidden[0].numel()
    for ask in (lambda trace: trace.attribution(), lambda trace: trace.map("attribution")):
        ask(random_lens("bert").trace(SHORT))
        assert f"{count}/{count}" in capsys.readouterr().err


def test_a_text_of_another_is_attributed_to_itself() -> None:
    """A decoder's tokens share what moves their vectors; the source text is given."""
    lens = random_lens("bart")
    found = lens.trace(TEXTS[0], target=SHORT).attribution(probes=8)
    assert found.values.shape[1:] == (len(lens.trace(TEXTS[0], target=SHORT).tokens),) * 2

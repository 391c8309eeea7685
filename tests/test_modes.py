"""Public calls give the same numbers in every mode of torch, and leave no graph behind."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import prosect
from prosect.corpus.statistics.classifier import Examples, Training, train
from prosect.modes import in_plain_arithmetic, plain_arithmetic
from support.families import FAMILIES, TEXTS, random_lens, random_model

MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "gradients": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}

CALLS: dict[str, Callable[[prosect.Trace], Any]] = {
    "hidden": lambda trace: trace.hidden,
    "attention": lambda trace: trace.attention,
    "terms": lambda trace: trace.terms(),
    "terms, centred each": lambda trace: trace.terms(centring="each"),
    "term": lambda trace: trace.terms().feed_forward,
    "importance": lambda trace: trace.terms().importance(),
    "norm": lambda trace: trace.terms().norm(),
    "cosine": lambda trace: trace.terms().cosine(),
    "by head": lambda trace: trace.terms("head"),
    "by source": lambda trace: trace.terms("source", targets=[2]).norm(),
    "select": lambda trace: trace.terms("norm").select(layer=1),
    "neurons": lambda trace: trace.neurons(1, 2),
    "predict": lambda trace: trace.predict(),
    "predict from a term": lambda trace: trace.predict("input", k=3),
    "logit contributions": lambda trace: trace.logit_contributions(7),
    "with rest": lambda trace: trace.map("ATB", rest=True),
    "mixing": lambda trace: trace.map("ATB").mixing(),
    "alti": lambda trace: trace.map("ATB", measure="alti"),
    "from the biases": lambda trace: trace.map("contribution", baseline="bias"),
    "compare": lambda trace: trace.compare("ATTN", "ATB"),
    "pairs": lambda trace: trace.compare("ATTN", "ATB").pairs(3),
    "cancellation": lambda trace: trace.cancellation(),
    "gains": lambda trace: trace.gains(),
    "rollout": lambda trace: trace.rollout(),
    "attention identifiability": lambda trace: trace.attention_identifiability(),
    "identifiable": lambda trace: trace.attention_identifiability().identifiable,
    "nullspace": lambda trace: trace.nullspace(0, 1),
    "alternative": lambda trace: trace.nullspace(0, 1).alternative(seed=3),
    "effective correlation": lambda trace: trace.effective_correlation(),
    "attribution": lambda trace: trace.attribution(),
    "estimated": lambda trace: trace.attribution(probes=3),
    "times input": lambda trace: trace.attribution(times_input=True),
    "of a head": lambda trace: trace.attribution(probes=2, head=(1, 2)),
    "own": lambda trace: trace.attribution().own(),
    "by distance": lambda trace: trace.attribution().by_distance(3),
    "overtaken": lambda trace: trace.attribution().overtaken(),
    "local": lambda trace: trace.attribution().local(),
    "chosen": lambda trace: trace.attribution().at([1]).after([0]),
    "identify": lambda trace: trace.identify(3),
    "labels": lambda trace: trace.identify(3).labels,
    "vocabulary": lambda trace: trace.identify(3, "l2", "vocabulary"),
    "vocabulary, with positions": lambda trace: trace.identify(
        2, "dot", "vocabulary", positions=True
    ),
}
KINDS = (
    *("attention", "norm", "ATTN", "contribution", "effective", "null"),
    *("change_FF", "attribution", "value_zeroing"),
)


@cache
def model(family: str) -> Any:
    """With weights that require gradients, as all models are loaded."""
    return random_model(family, torch.float32).requires_grad_()


def traced(family: str) -> prosect.Trace:
    return prosect.Lens(model(family), FAMILIES[family].tokenizer()).trace(TEXTS[0])


def tensors_in(found: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """Every tensor in a result, in order."""
    seen = set() if seen is None else seen
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, Tensor):
        yield found
    elif isinstance(found, Mapping):
        for value in found.values():
            yield from tensors_in(value, seen)
    elif isinstance(found, Sequence) and not isinstance(found, str):
        for value in found:
            yield from tensors_in(value, seen)
    elif dataclasses.is_dataclass(found):
        for field in dataclasses.fields(found):
            yield from tensors_in(getattr(found, field.name), seen)


def numbers_in(found: Any) -> list[float]:
    """The numbers of a result that are not in tensors: errors, probabilities."""
    if isinstance(found, float):
        return [found]
    if isinstance(found, Sequence) and not isinstance(found, str):
        return [number for one in found for number in numbers_in(one)]
    if dataclasses.is_dataclass(found):
        return [n for f in dataclasses.fields(found) for n in numbers_in(getattr(found, f.name))]
    return []


def assert_same(found: Any, expected: Any) -> None:
    """The same numbers, and no graph."""
    pairs = list(zip(tensors_in(found), tensors_in(expected), strict=True))
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7, equal_nan=True)
        assert not one.requires_grad
        assert one.grad_fn is None
        assert not one.is_inference()
    numbers = numbers_in(found)
    assert numbers == pytest.approx(numbers_in(expected), rel=1e-5, abs=1e-6, nan_ok=True)
    assert pairs or numbers or isinstance(found, list)


@cache
def plain(family: str) -> tuple[dict[str, Any], dict[str, Any]]:
    with plain_arithmetic():
        trace = traced(family)
        calls = {name: call(trace) for name, call in CALLS.items()}
        return calls, {kind: trace.map(kind) for kind in KINDS if kind in trace.kinds}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", ["bert", "llama"])
def test_every_call_gives_the_same_in_every_mode(family: str, mode: str) -> None:
    calls, maps = plain(family)
    with MODES[mode]():
        trace = traced(family)
        for name, call in CALLS.items():
            assert_same(call(trace), calls[name])
        for kind, expected in maps.items():
            assert_same(trace.map(kind), expected)


@pytest.mark.parametrize("mode", MODES)
def test_a_trace_of_one_mode_can_be_asked_in_another(mode: str) -> None:
    calls, _ = plain("bert")
    with MODES[mode]():
        trace = traced("bert")
    for name in ("terms", "attribution", "identify", "alternative"):
        assert_same(CALLS[name](trace), calls[name])
    trace = traced("bert")
    with MODES[mode]():
        for name in ("terms", "attribution", "identify", "alternative"):
            assert_same(CALLS[name](trace), calls[name])


@pytest.mark.parametrize("mode", MODES)
def test_results_are_differentiable_by_the_caller(mode: str) -> None:
    """What is returned are plain tensors, which may take part in the caller's own training."""
    with MODES[mode]():
        hidden = traced("bert").hidden
    weight = torch.ones(hidden.shape[-1], requires_grad=True)
    (hidden @ weight).sum().backward()
    assert weight.grad is not None


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2", "bloom"])
def test_weights_made_in_inference_mode_work_as_well(family: str) -> None:
    expected = random_lens(family, torch.float32).trace(TEXTS[0])
    with torch.inference_mode():
        made = random_model(family, torch.float32)
    assert next(made.parameters()).is_inference()
    trace = prosect.Lens(made, FAMILIES[family].tokenizer()).trace(TEXTS[0])
    for name in ("terms", "predict", "logit contributions", "estimated", "vocabulary"):
        assert_same(CALLS[name](trace), CALLS[name](expected))
    for kind in ("ATB", "contribution", "value_zeroing"):
        assert_same(trace.map(kind), expected.map(kind))


@pytest.mark.parametrize("mode", MODES)
def test_decoders_and_their_sources_work_in_every_mode(mode: str) -> None:
    lens = random_lens("bart", torch.float32)
    expected = lens.trace(TEXTS[0], target=TEXTS[1]).attribution(probes=2)
    with MODES[mode]():
        found = lens.trace(TEXTS[0], target=TEXTS[1]).attribution(probes=2)
    assert_same(found, expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", ["ridge", "linear", "mlp"])
def test_maps_to_the_input_are_learned_in_every_mode(shape: Any, mode: str) -> None:
    """Training needs gradients, which the caller may have turned off."""
    lens = random_lens("bert", torch.float32)
    texts = [f"{text} {number}" for text in TEXTS[:3] for number in range(6)]

    def learned() -> Any:
        training = {} if shape == "ridge" else {"seeds": 1, "epochs": 2}
        found = prosect.learn_identity(lens, texts, shape, **training)
        return [found.recovered, found.unmapped, found.transfer]

    expected = learned()
    with MODES[mode]():
        assert_same(learned(), expected)


@pytest.mark.parametrize("mode", MODES)
def test_the_doctor_finds_the_same_in_every_mode(mode: str) -> None:
    lens = prosect.Lens(model("bert"), FAMILIES["bert"].tokenizer())
    expected = [(row.what, row.supported) for row in prosect.doctor(lens).rows]
    with MODES[mode]():
        assert [(row.what, row.supported) for row in prosect.doctor(lens).rows] == expected
    assert all(supported is not False for _, supported in expected)


@pytest.mark.parametrize("mode", MODES)
def test_heads_are_trained_in_every_mode(mode: str) -> None:
    generator = torch.Generator().manual_seed(0)
    terms = torch.randn(4, 40, 6, generator=generator)
    labels = torch.randint(3, (40,), generator=generator)

    def trained() -> list[Tensor]:
        examples = Examples(terms, labels)
        mix = torch.ones(1, 4)
        heads = train(examples, examples, mix, 3, training=Training(epochs=3))
        return [weight.detach() for weight in heads.weights]

    expected = trained()
    with MODES[mode]():
        assert_same(trained(), expected)


def state() -> list[bool]:
    modes = [torch.is_grad_enabled(), torch.is_inference_mode_enabled()]
    return [*modes, torch.is_autocast_enabled("cpu")]


@pytest.mark.parametrize("mode", [nullcontext, *MODES.values()], ids=["none", *MODES])
def test_the_callers_mode_holds_between_traces(
    mode: Callable[[], AbstractContextManager[Any]],
) -> None:
    lens = random_lens("bert", torch.float32)
    seen = []

    def texts() -> Iterator[str]:
        yield from TEXTS[:3]

    with mode():
        before = state()
        for trace in lens.traces(texts(), batch_size=2):
            seen.append(trace)
            assert state() == before
        half = lens.traces(TEXTS[:3], batch_size=1)
        next(half)
        half.close()
        assert state() == before
        with pytest.raises(TypeError):
            next(lens.traces(["a river", 3]))
        assert state() == before
    for trace, expected in zip(seen, lens.traces(TEXTS[:3], batch_size=2), strict=True):
        assert_same(trace.hidden, expected.hidden)


RESULTS = (
    *(prosect.Trace, prosect.Lens, prosect.Terms, prosect.Parts, prosect.TokenMap),
    *(prosect.Attribution, prosect.Comparison, prosect.Identity, prosect.NullSpace),
)


@pytest.mark.parametrize("cls", RESULTS)
def test_signatures_and_docstrings_stay(cls: type) -> None:
    for name, member in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.getdoc(member), name
            assert "args" not in inspect.signature(member).parameters, name


def test_what_is_decorated_runs_in_plain_arithmetic() -> None:
    @in_plain_arithmetic
    class Example:
        @property
        def asked(self) -> list[bool]:
            """A property."""
            return state()

        @classmethod
        def made(cls) -> list[bool]:
            """A classmethod."""
            return state()

        @staticmethod
        def fixed() -> list[bool]:
            """A static method."""
            return state()

        def called(self) -> list[bool]:
            """A method."""
            return state()

        def many(self) -> Iterator[list[bool]]:
            """A generator."""
            yield state()
            yield state()

    modes = torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)
    with modes[0], modes[1]:
        example = Example()
        found = [example.asked, Example.made(), Example.fixed(), example.called(), *example.many()]
        assert found == [[False, False, False]] * 6
        assert state() == [False, True, True]
    assert Example.asked.__doc__ == "A property."

"""One forward pass is observed: the model is left as it was found, and what is not finite is named."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import prosect
from prosect.analyses.certificate import TOLERANCES
from support.families import (
    FAMILIES,
    STACKS,
    TEXTS,
    family_of,
    random_lens,
    random_model,
    sample,
    trace_of,
)

OPENINGS = ["bert", "gpt2", "mpnet", "deberta-v2", "gpt-neo", "bloom", "albert", "opt-post-norm"]
OPENINGS += ["t5", "t5-decoder", "bart-decoder"]
"""Stacks seen by the tap and stacks seen by hooks; encoders and decoders."""


def _fingerprint(model: Any) -> dict[str, Any]:
    return {
        "attention": [
            m.config._attn_implementation for m in model.modules() if hasattr(m, "config")
        ],
        "configurations": [str(m.config) for m in model.modules() if hasattr(m, "config")],
        "training": [m.training for m in model.modules()],
        "hooks": [
            [len(hooks) for name, hooks in vars(m).items() if "hooks" in name and hooks is not None]
            for m in model.modules()
        ],
        "gradients": [(p.requires_grad, p.grad is None) for p in model.parameters()],
        "weights": {name: float(value.float().sum()) for name, value in model.state_dict().items()},
        "grad mode": torch.is_grad_enabled(),
    }


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("stack", OPENINGS)
def test_the_model_is_left_as_it_was_found(stack: str, implementation: str) -> None:
    lens = random_lens(family_of(stack))
    if implementation == "eager" or lens.model._supports_sdpa:
        lens.model.set_attn_implementation(implementation)
    lens.model.train()
    lens.model.get_input_embeddings().eval()
    next(lens.model.parameters()).requires_grad_(False)
    before = _fingerprint(lens.model)
    trace = trace_of(lens, stack)
    assert _fingerprint(lens.model) == before
    trace.terms("source")
    trace.neurons(0, 0)
    assert _fingerprint(lens.model) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("stack", OPENINGS)
def test_the_model_is_left_as_it_was_found_after_an_error(
    stack: str, error: type[BaseException]
) -> None:
    lens = random_lens(family_of(stack))
    lens.model.train()
    stopped = lens.anatomy if stack in FAMILIES else lens.decoder
    assert stopped is not None

    def interrupt(*_: object) -> None:
        raise error

    handle = stopped.blocks[1].module.register_forward_hook(interrupt)
    before = _fingerprint(lens.model)
    with pytest.raises(error):
        trace_of(lens, stack)
    assert _fingerprint(lens.model) == before
    handle.remove()
    exact = FAMILIES[family_of(stack)].exact(torch.float64)
    assert trace_of(lens, stack).terms().error <= exact


def test_an_interrupted_batch_leaves_the_model_as_it_was_found() -> None:
    lens = random_lens("bert")
    lens.model.train()
    calls = 0

    def interrupt(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt

    lens.anatomy.blocks[0].module.register_forward_hook(interrupt)
    before = _fingerprint(lens.model)
    traces = lens.traces(TEXTS, batch_size=2)
    next(traces)
    assert _fingerprint(lens.model) == before  # between batches too
    next(traces)
    with pytest.raises(KeyboardInterrupt):
        next(traces)
    assert _fingerprint(lens.model) == before


def test_hooks_and_gradients_of_the_user_go_on_working() -> None:
    lens = random_lens("gpt2", torch.float32)
    seen: list[torch.Size] = []
    module: Any = lens.anatomy.blocks[0].module
    module.register_forward_hook(lambda _m, _a, output: seen.append(output[0].shape))
    lens.trace(TEXTS[0])
    assert len(seen) == 1
    ids = lens.tokenizer(TEXTS[0], return_tensors="pt").input_ids
    model: Any = lens.model
    model(input_ids=ids, labels=ids).loss.backward()
    assert all(p.grad is not None for p in model.transformer.h.parameters())
    gradient = model.transformer.wte.weight.grad.clone()
    trace = lens.trace(TEXTS[0])
    trace.predict()
    assert torch.equal(model.transformer.wte.weight.grad, gradient)


def test_dropout_does_not_act_in_a_model_left_in_training_mode() -> None:
    lens = random_lens("bert")
    expected = lens.trace(TEXTS[0]).hidden
    lens.model.train()
    assert torch.equal(lens.trace(TEXTS[0]).hidden, expected)


def test_moving_or_reloading_the_weights_is_followed() -> None:
    lens = random_lens("bert", torch.float32)
    lens.model.double()
    assert lens.trace(TEXTS[0]).terms().error < 1e-12
    lens.model.load_state_dict(random_model("bert", seed=1).state_dict())
    assert lens.trace(TEXTS[0]).terms().error < 1e-12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("stack", STACKS)
def test_models_in_half_precision_are_analysed_in_float32(stack: str, dtype: torch.dtype) -> None:
    trace = sample(stack, dtype)
    assert trace.lens.model.dtype == dtype
    assert trace.hidden.dtype == trace.attention.dtype == torch.float32
    terms = trace.terms()
    assert terms.values.dtype == torch.float32
    assert terms.error <= TOLERANCES[dtype]
    for by in ("layer", "head", "source", "norm", "embedding"):
        parts = trace.terms(by)
        assert parts.values.dtype == torch.float32
        assert parts.error <= TOLERANCES[dtype]
    assert trace.neurons(1, 2).values.dtype == torch.float32
    family = family_of(stack)
    exact = random_model(family, dtype).float()
    full = trace_of(prosect.Lens(exact, FAMILIES[family].tokenizer()), stack)
    off = (terms.values - full.terms().values).norm() / full.terms().values.norm()
    assert off < 0.2


@pytest.mark.parametrize(
    ("stack", "value"), [*((stack, float("nan")) for stack in OPENINGS), ("bert", float("inf"))]
)
def test_values_that_are_not_finite_name_the_layer(stack: str, value: float) -> None:
    lens = random_lens(family_of(stack), torch.float32)
    anatomy = lens.anatomy if stack in FAMILIES else lens.decoder
    assert anatomy is not None
    block = anatomy.blocks[1]
    first = next(n for n, b in enumerate(anatomy.blocks, start=1) if b.module is block.module)
    with torch.no_grad():
        block.feed_forward.output.module.weight[0, 0] = value
    with pytest.raises(prosect.ProsectError, match=f"output of layer {first}: check") as raised:
        trace_of(lens, stack)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("stack", OPENINGS)
def test_embeddings_that_are_not_finite_are_named(stack: str) -> None:
    lens = random_lens(family_of(stack), torch.float32)
    anatomy = lens.anatomy if stack in FAMILIES else lens.decoder
    assert anatomy is not None
    with torch.no_grad():
        anatomy.words.weight[:, 0] = float("nan")
    with pytest.raises(prosect.ProsectError, match="NaN or infinite values in the embeddings"):
        trace_of(lens, stack)


def test_threads_that_trace_one_model_do_not_disturb_each_other() -> None:
    lens = random_lens("bert")
    lens.model.set_attn_implementation("sdpa")
    expected = {text: lens.trace(text).hidden for text in TEXTS[:2]}
    wrong: list[str] = []

    def work(text: str) -> None:
        for _ in range(20):
            if not torch.equal(lens.trace(text).hidden, expected[text]):
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(text,)) for text in TEXTS[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert lens.model.config._attn_implementation == "sdpa"

"""A trace is what the model itself computes, and the model is left as it was found."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import prosect
from families import FAMILIES, SIZES, TEXTS, random_lens, random_model, word_pieces


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tapped_run_equals_the_models_own_eager_run(family: str) -> None:
    lens = random_lens(family)
    trace = lens.trace(TEXTS[0])
    inputs = lens.tokenizer(TEXTS[0], return_tensors="pt")
    if family == "distilbert":
        inputs.pop("token_type_ids", None)
    eager = random_model(family)
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        output = eager.base_model(**inputs, output_hidden_states=True, output_attentions=True)
    assert torch.equal(trace.hidden, torch.stack(output.hidden_states)[:, 0])
    assert torch.equal(trace.attention, torch.stack(output.attentions)[:, 0])


@pytest.mark.parametrize("family", FAMILIES)
def test_shapes_are_those_documented(family: str) -> None:
    trace = random_lens(family).trace(TEXTS[1])
    n = len(trace.tokens)
    assert trace.hidden.shape == (SIZES["layers"] + 1, n, SIZES["d"])
    assert trace.attention.shape == (SIZES["layers"], SIZES["heads"], n, n)
    assert not trace.hidden.requires_grad
    assert not trace.terms().values.requires_grad


def test_a_pair_keeps_its_types_and_its_two_texts() -> None:
    lens = random_lens("bert")
    trace = lens.trace("The river bank.", "Its rates.")
    inputs = lens.tokenizer("The river bank.", "Its rates.", return_tensors="pt")
    with torch.no_grad():
        expected = lens.model.base_model(**inputs).last_hidden_state[0]
    torch.testing.assert_close(trace.hidden[-1], expected, rtol=1e-12, atol=1e-12)
    assert [t.text for t in trace.tokens if t.text.lower() in {"bank", "rates"}] == [
        "bank",
        "rates",
    ]
    words = [token.word for token in trace.tokens if token.word is not None]
    assert words == sorted(words)
    assert max(words) == 6


def _fingerprint(model: Any) -> dict[str, Any]:
    return {
        "attention": [
            m.config._attn_implementation for m in model.modules() if hasattr(m, "config")
        ],
        "training": [m.training for m in model.modules()],
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
        "gradients": [(p.requires_grad, p.grad is None) for p in model.parameters()],
        "grad mode": torch.is_grad_enabled(),
    }


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_the_model_is_left_as_it_was_found(family: str, implementation: str) -> None:
    lens = random_lens(family)
    lens.model.set_attn_implementation(implementation)
    lens.model.train()
    lens.model.base_model.get_input_embeddings().eval()
    before = _fingerprint(lens.model)
    lens.trace(TEXTS[0])
    assert _fingerprint(lens.model) == before


def test_the_model_is_left_as_it_was_found_after_an_error() -> None:
    lens = random_lens("bert")
    lens.model.train()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    handle = lens.anatomy.blocks[1].module.register_forward_hook(interrupt)
    before = _fingerprint(lens.model)
    with pytest.raises(KeyboardInterrupt):
        lens.trace(TEXTS[0])
    assert _fingerprint(lens.model) == before
    handle.remove()
    assert lens.trace(TEXTS[0]).terms().error < 1e-12


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


def test_weights_in_half_precision_are_analysed_in_float32() -> None:
    trace = random_lens("bert", torch.bfloat16).trace(TEXTS[0])
    assert trace.hidden.dtype == torch.float32


def test_values_that_are_not_finite_name_the_layer() -> None:
    lens = random_lens("bert")
    with torch.no_grad():
        lens.anatomy.blocks[1].feed_forward.output.weight[0, 0] = float("nan")
    with pytest.raises(prosect.ProsectError, match="output of layer 2"):
        lens.trace(TEXTS[0])


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_text_says_so(text: str) -> None:
    with pytest.raises(prosect.ProsectError, match="The text is empty"):
        random_lens("bert").trace(text)
    if not text:
        with pytest.raises(prosect.ProsectError, match="The text is empty"):
            random_lens("gpt2").trace(text)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_that_fills_every_position_is_traced_and_one_more_token_is_refused(
    family: str,
) -> None:
    lens = random_lens(family)
    added = len(lens.tokenizer("a").input_ids) - 1
    most = SIZES["positions"] - added
    assert len(lens.trace("a" + "," * (most - 1)).tokens) == SIZES["positions"]
    with pytest.raises(prosect.ProsectError, match=r"65 tokens .* at most 64: .* by 1 token or"):
        lens.trace("a" + "," * most)


def test_a_text_that_is_no_string_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a string, not list"):
        random_lens("bert").trace(["a", "b"])  # pyright: ignore[reportArgumentType]


def test_a_single_token_is_traced() -> None:
    trace = random_lens("gpt2").trace("a")
    assert len(trace.tokens) == 1
    assert trace.terms().error < 1e-12
    assert trace.identify().recovered[0].all()


def test_unknown_kinds_and_metrics_are_named() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    with pytest.raises(
        prosect.ProsectError, match="no kind of map 'ATBX': choose one of attention"
    ):
        trace.map("ATBX")
    with pytest.raises(prosect.ProsectError, match="no metric 'L3': choose one of cosine, l2"):
        trace.identify(metric="L3")  # pyright: ignore[reportArgumentType]
    with pytest.raises(prosect.ProsectError, match="choose 'sentence'"):
        trace.identify(candidates="world")
    with pytest.raises(prosect.ProsectError, match="at least 1, not 0"):
        trace.identify(k=0)


def test_a_tokenizer_of_another_model_is_refused() -> None:
    model = random_model("bert")
    model.resize_token_embeddings(50)
    with pytest.raises(prosect.ProsectError, match="load both from the same place"):
        prosect.Lens(model, word_pieces())

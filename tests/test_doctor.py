"""The doctor says what is supported, and why not, for any model, and changes nothing in it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    CTRLConfig,
    CTRLModel,
    PreTrainedTokenizerFast,
    T5EncoderModel,
)

import prosect
from support.families import FAMILIES, PAIRS, random_model, word_pieces

NEEDS_NOTHING = ("trace", "parity", "terms", "finer splits", "maps")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_supported_throughout(
    family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    diagnosis = prosect.doctor(random_model(family), FAMILIES[family].tokenizer())
    answers = {row.what: row.supported for row in diagnosis.rows if row.supported is not None}
    expected = {*NEEDS_NOTHING, "tokenizer", "predictions"}
    expected |= {"cross-attention"} if family in PAIRS else set()
    lacking = set() if FAMILIES[family].predicts else {"predictions"}
    lacking |= set() if FAMILIES[family].known_scores else {"attribution"}
    assert answers == {what: what not in lacking for what in {*expected, "attribution"}}
    assert capsys.readouterr().out == f"{diagnosis}\n"


def test_the_table_is_aligned_and_says_what_was_measured() -> None:
    text = str(prosect.doctor(random_model("llama", torch.float32)))
    lines = text.splitlines()
    assert ["family", "LLaMA"] in [line.split() for line in lines]
    assert "3 layers × 4 heads over 2 keys and values" in text
    assert "input + attention + feed_forward + bias, error" in text
    details = ["LLaMA", "3 layers", "input + attention", "by layer, head"]
    assert len({line.index(part) for line in lines for part in details if part in line}) == 1


def test_parity_is_measured_against_the_models_own_eager_attention() -> None:
    model = random_model("bert")
    assert "within 0.0e+00" in prosect.doctor(model)["parity"].detail
    core = model.base_model.encoder.layer[1].attention.self

    def differ(_module: Any, _arguments: Any, output: Any) -> Any:
        eager = model.config._attn_implementation == "eager"
        return (output[0] * 1.01, *output[1:]) if eager else output

    core.register_forward_hook(differ)
    assert not prosect.doctor(model)["parity"].supported


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["bert", "llama", "bart"])
def test_the_model_is_left_as_it_was_found(family: str, implementation: str) -> None:
    model: Any = random_model(family)
    model.set_attn_implementation(implementation)
    model.train()
    model.base_model.get_input_embeddings().eval()

    def fingerprint() -> list[Any]:
        return [
            [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")],
            [m.training for m in model.modules()],
            [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
            [(p.requires_grad, p.grad is None) for p in model.parameters()],
            torch.is_grad_enabled(),
            torch.get_rng_state().tolist(),
        ]

    before = fingerprint()
    prosect.doctor(model)
    assert fingerprint() == before


def test_an_unsupported_architecture_gets_a_no_and_the_reason() -> None:
    model = CTRLModel(
        CTRLConfig(vocab_size=300, n_embd=8, dff=8, n_layer=1, n_head=2, n_positions=16)
    )
    diagnosis = prosect.doctor(model)
    assert not diagnosis["trace"].supported
    assert diagnosis["trace"].detail.startswith("The architecture 'ctrl' is not supported yet")
    assert "\n" not in diagnosis["trace"].detail


@pytest.mark.parametrize("thing", [None, "bert-base-uncased", torch.nn.Linear(2, 2), [1, 2]])
def test_what_is_no_model_gets_a_no_and_not_a_traceback(thing: Any) -> None:
    diagnosis = prosect.doctor(thing)
    assert not diagnosis["trace"].supported
    assert "is not a transformers model" in diagnosis["trace"].detail


def test_a_model_that_lacks_its_parts_gets_a_no_and_not_a_traceback() -> None:
    model = random_model("t5")
    assert not prosect.doctor(T5EncoderModel(model.config))["trace"].supported
    model = random_model("bert")
    del model.base_model.encoder.layer[0].attention.output.LayerNorm
    assert not prosect.doctor(model)["trace"].supported


def test_weights_that_are_not_finite_name_the_layer() -> None:
    model = random_model("bert")
    torch.nn.init.constant_(model.base_model.encoder.layer[1].output.dense.weight, torch.nan)
    assert "the output of layer 2" in prosect.doctor(model)["trace"].detail


def test_terms_that_do_not_add_up_are_a_no_that_names_the_step() -> None:
    model = random_model("bert")
    dropout = model.base_model.encoder.layer[1].output.dropout
    dropout.register_forward_hook(lambda _m, _a, output: output + 0.5 * output.roll(1, -1))
    diagnosis = prosect.doctor(model)
    assert diagnosis["trace"].supported
    assert not diagnosis["terms"].supported
    assert "first at the layer 2 feed-forward" in diagnosis["terms"].detail


def test_a_model_without_a_head_has_no_predictions() -> None:
    diagnosis = prosect.doctor(random_model("bert").base_model)
    assert diagnosis["terms"].supported
    assert not diagnosis["predictions"].supported
    assert "has no head that predicts tokens" in diagnosis["predictions"].detail


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_says_that_it_is_analysed_in_float32(dtype: torch.dtype) -> None:
    # transformers' own initial weights: random ones overflow nothing here, but mean nothing either
    model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4))
    diagnosis = prosect.doctor(model.to(dtype))
    assert diagnosis["precision"].detail.endswith("16, analysed in float32")
    assert all(diagnosis[what].supported for what in NEEDS_NOTHING), str(diagnosis)


def test_a_tokenizer_of_another_model_is_found_out() -> None:
    model = random_model("bert")
    large = PreTrainedTokenizerFast(tokenizer_object=word_pieces().backend_tokenizer)
    large.add_tokens([f"extra{number}" for number in range(500)])
    diagnosis = prosect.doctor(model, large)
    assert not diagnosis["tokenizer"].supported
    assert "load both under the same name" in diagnosis["tokenizer"].detail
    assert diagnosis["trace"].supported


def test_a_lens_is_examined_with_its_tokenizer() -> None:
    lens = prosect.Lens(random_model("bert"), word_pieces())
    assert str(prosect.doctor(lens)) == str(prosect.doctor(lens.model, lens.tokenizer))

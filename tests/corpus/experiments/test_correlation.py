from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import prosect
from corpus.sentences import sentences
from prosect import corpus
from prosect.corpus.experiments.correlation import TokenShares
from prosect.corpus.statistics.moments import ClusteredMean
from support.families import FAMILIES, random_lens, random_model, word_pieces

TEXTS = sentences(12)


def correlation(models: Any, texts: Any = TEXTS, **settings: Any) -> corpus.CorrelationResult:
    return corpus.correlation(models, texts, progress=False, **settings)


def moved(family: str, by: float = 0.03) -> prosect.Lens:
    """The random model with all weights a little different, as tuning leaves them."""
    model = random_model(family)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by * torch.randn_like(parameter))
    return prosect.Lens(model, FAMILIES[family].tokenizer(), name="moved")


def shares(lens: prosect.Lens, special: bool = True) -> list[np.ndarray]:
    """Every text's importance, [term, layer+1, token], as it is kept."""
    found = []
    for text in TEXTS:
        trace = lens.trace(text)
        kept = [i for i, token in enumerate(trace.tokens) if special or not token.special]
        found.append(trace.terms().importance()[..., kept].float().double().numpy())
    return found


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("family", ["bert", "gpt2", "gptj", "t5"])
def test_figures_are_those_of_all_tokens_in_memory(family: str, special: bool) -> None:
    models = {"before": random_lens(family), "after": moved(family)}
    found = correlation(models, special=special, batch=5, shard=5)
    first, second = (shares(lens, special) for lens in models.values())
    a, b = np.concatenate(first, -1), np.concatenate(second, -1)
    (pair,) = found.pairs
    assert pair == "before → after"
    tolerance = 1e-6  # how the batch is cut shows in the last digit of float32
    np.testing.assert_allclose(found.mean["after"], b.mean(-1), atol=tolerance)
    np.testing.assert_allclose(found.change[pair], (b - a).mean(-1), atol=tolerance)
    totals = np.stack([(y - x).sum(-1) for x, y in zip(first, second, strict=True)])
    counts = np.array([x.shape[-1] for x in first])
    expected = ClusteredMean.of(totals, counts).error
    np.testing.assert_allclose(found.change_error[pair], expected, atol=tolerance)
    for place in np.ndindex(a.shape[:2]):
        rho = found.correlation[pair][place]
        if min(a[place].std(), b[place].std()) < 1e-6:
            assert np.isnan(rho)
        else:
            assert rho == pytest.approx(spearmanr(a[place], b[place]).statistic, abs=1e-4)
    assert found.about.tokens == {"tokens": a.shape[-1]}


def test_a_model_correlates_with_itself_and_does_not_change() -> None:
    found = correlation({"one": random_lens("bert"), "same": random_lens("bert")})
    (rho,), (change,) = found.correlation.values(), found.change.values()
    # the same sums may be rounded differently in another place of the memory
    np.testing.assert_allclose(rho[:, 1:], 1.0, atol=1e-6)
    np.testing.assert_allclose(change, 0.0, atol=1e-7)
    (error,), (change_error,) = found.correlation_error.values(), found.change_error.values()
    np.testing.assert_allclose(error[:, 1:], 0.0, atol=1e-6)
    np.testing.assert_allclose(change_error, 0.0, atol=1e-7)


def test_shares_that_are_all_the_same_have_no_rank() -> None:
    """The embeddings of a post-norm model hold no attention; those of GPT-2 are all input."""
    for family, still in (("bert", [1, 2]), ("gpt2", [0, 1, 2, 3])):
        found = correlation({"a": random_lens(family), "b": moved(family)})
        (rho,), (error,) = found.correlation.values(), found.correlation_error.values()
        assert np.flatnonzero(np.isnan(rho[:, 0])).tolist() == still
        assert np.isfinite(rho[:, 1:]).all()
        np.testing.assert_array_equal(np.isnan(error), np.isnan(rho))


def test_every_pair_of_models_is_compared() -> None:
    models = {name: moved("bert", by) for name, by in (("a", 0.0), ("b", 0.01), ("c", 0.1))}
    found = correlation(models)
    assert list(found.pairs) == ["a → b", "a → c", "b → c"]
    near, far = (np.nanmean(found.correlation[pair]) for pair in ("a → b", "a → c"))
    assert near > far
    total = found.change["a → b"] + found.change["b → c"]
    np.testing.assert_allclose(total, found.change["a → c"], atol=1e-12)
    alone = correlation({name: models[name] for name in "bc"})
    np.testing.assert_array_equal(alone.correlation["b → c"], found.correlation["b → c"])


def test_nothing_depends_on_how_the_work_was_cut() -> None:
    models = {"a": random_lens("bert"), "b": moved("bert")}
    whole = correlation(models, batch=12, shard=12)
    with ThreadPoolExecutor(1) as executor:
        cut = correlation(models, batch=1, shard=1, executor=executor)
    for name in ("change", "change_error", "correlation", "correlation_error"):
        np.testing.assert_allclose(
            getattr(cut, name)["a → b"], getattr(whole, name)["a → b"], atol=1e-6
        )
    same = correlation(models, batch=4, shard=4)
    again = correlation(models, batch=4, shard=8)
    np.testing.assert_array_equal(same.correlation["a → b"], again.correlation["a → b"])


def test_the_error_of_rho_is_that_of_leaving_out_one_text_at_a_time() -> None:
    models = {"a": random_lens("bert"), "b": moved("bert", 0.1)}
    texts = sentences(120)
    found = correlation(models, texts)
    both = [
        [t.terms().importance().float().double().numpy() for t in lens.traces(texts)]
        for lens in models.values()
    ]
    for term, layer in ((0, 2), (1, 1), (2, 3), (3, 3)):
        a, b = ([x[term, layer] for x in own] for own in both)
        values = []
        for i in range(len(texts)):
            x, y = (np.concatenate(own[:i] + own[i + 1 :]) for own in (a, b))
            values.append(spearmanr(x, y).statistic)
        k = len(values)
        expected = np.sqrt((k - 1) / k * np.square(np.subtract(values, np.mean(values))).sum())
        error = found.correlation_error["a → b"][term, layer]
        assert error == pytest.approx(expected, rel=0.05)


def test_one_text_has_no_standard_error() -> None:
    found = correlation({"a": random_lens("bert"), "b": moved("bert")}, TEXTS[:1])
    assert np.isnan(found.change_error["a → b"]).all()
    assert np.isnan(found.correlation_error["a → b"]).all()
    assert np.isfinite(found.correlation["a → b"][:, 1:]).all()


def test_other_tokens_are_refused_and_the_first_such_text_is_named() -> None:
    lens, cased = random_lens("bert"), word_pieces()
    model = random_model("bert")
    rules = cased.backend_tokenizer.to_str().replace('"lowercase":true', '"lowercase":false')
    other = type(cased)(
        tokenizer_object=type(cased.backend_tokenizer).from_str(rules),
        **{f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")},
    )
    models = {"lower": lens, "cased": prosect.Lens(model, other)}
    texts = ["the road", "the bank", "The road", "A road"]
    with pytest.raises(
        prosect.ProsectError, match="lower and cased split text 2, 'The road', into diff"
    ):
        correlation(models, texts)
    assert np.isfinite(correlation(models, texts[:2]).change["lower → cased"]).all()


def test_other_tokens_in_the_first_text_are_found_before_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = {"bert": random_lens("bert"), "gpt2": random_lens("gpt2")}
    monkeypatch.setattr(sys.modules[TokenShares.__module__], "run", None)
    with pytest.raises(prosect.ProsectError, match=r"split text 0, 'The ducks crossed the road\.'"):
        correlation(models)


def test_models_of_different_depth_are_refused() -> None:
    family = FAMILIES["bert"]
    torch.manual_seed(0)
    config = family.config(**{**family.sizes(), "num_hidden_layers": 2})
    models = {
        "deep": random_lens("bert"),
        "flat": prosect.Lens(family.model(config), word_pieces()),
    }
    with pytest.raises(prosect.ProsectError, match=r"same layers .* but deep has 3 and flat has 2"):
        correlation(models)


def test_texts_that_one_model_cannot_take_are_skipped() -> None:
    family = FAMILIES["bert"]
    config = family.config(**{**family.sizes(), "max_position_embeddings": 12})
    torch.manual_seed(0)
    short = prosect.Lens(family.model(config).double(), word_pieces())
    lens = random_lens("bert")
    fitting = [text for text in TEXTS if short.fits(text)]
    assert 0 < len(fitting) < len(TEXTS)
    found = correlation({"long": lens, "short": short})
    assert (found.about.texts, found.about.skipped) == (len(fitting), len(TEXTS) - len(fitting))
    expected = correlation({"long": lens, "short": short}, fitting)
    np.testing.assert_allclose(
        found.correlation["long → short"], expected.correlation["long → short"], atol=1e-5
    )
    with pytest.raises(prosect.ProsectError, match="None of the 1 texts fits"):
        correlation({"long": lens, "short": short}, [max(TEXTS, key=len)])


def test_texts_of_special_tokens_alone_leave_nothing() -> None:
    models = {"a": random_lens("bert"), "b": moved("bert")}
    found = correlation(models, ["[SEP]", TEXTS[0], "[MASK] [SEP]", TEXTS[1]], special=False)
    expected = correlation(models, TEXTS[:2], special=False)
    np.testing.assert_allclose(
        found.change_error["a → b"], expected.change_error["a → b"], atol=1e-6
    )
    with pytest.raises(prosect.ProsectError, match="No text fits all of the models and has"):
        correlation(models, ["[SEP]"], special=False)


def test_one_model_is_not_enough() -> None:
    with pytest.raises(prosect.ProsectError, match="special must be True or False, got 'no'"):
        correlation({"a": random_lens("bert"), "b": moved("bert")}, special="no")
    with pytest.raises(prosect.ProsectError, match="at least two models, got 1"):
        correlation(random_lens("bert"))
    with pytest.raises(prosect.ProsectError, match="Two models have the name 'bert'"):
        correlation([random_lens("bert"), random_lens("bert")])


def test_a_result_comes_back_from_its_file(tmp_path: Path) -> None:
    found = correlation({"a": random_lens("bert"), "b": moved("bert")})
    assert repr(found).startswith("CorrelationResult(a, b: 12 texts")
    found.save(tmp_path / "correlation.json")
    again = corpus.load(tmp_path / "correlation.json")
    assert isinstance(again, corpus.CorrelationResult)
    assert again.to_frame().equals(found.to_frame())
    assert len(found.to_frame()) == 4 * 4
    with pytest.raises(prosect.ProsectError, match="paper reports no numbers"):
        found.compare()


def test_figures_show_every_term_and_pair(tmp_path: Path) -> None:
    models = {name: moved("bert", by) for name, by in (("a", 0.0), ("b", 0.01), ("c", 0.1))}
    found = correlation(models)
    figure = found.figure()
    assert [axes.get_title() for axes in figure.axes] == list(found.pairs)
    drawn = figure.axes[2].lines[2].get_ydata()
    far = {pair: 0.5 * abs(rho) for pair, rho in found.correlation.items()}
    assert replace(found, correlation=far).figure().axes[0].get_ylim()[0] < 0
    near = {pair: 0.9 + 0.1 * abs(rho) for pair, rho in found.correlation.items()}
    sure = {pair: error / 100 for pair, error in found.correlation_error.items()}
    high = replace(found, correlation=near, correlation_error=sure).figure()
    bottom = high.axes[0].get_ylim()[0]
    assert 0.7 < bottom < min(np.nanmin(rho) for rho in near.values())
    assert found.figure("change").axes[0].get_ylim()[0] < 0
    np.testing.assert_array_equal(drawn, found.correlation["b → c"][1])
    figure.savefig(tmp_path / "correlation.pdf")
    plot = found.plot("change")
    assert [m.labels for m in plot.marks] == [["input"], ["attention"], ["feed-forward"], ["bias"]]
    np.testing.assert_array_equal(plot.marks[3].y, found.change["a → b"][3])
    with pytest.raises(prosect.ProsectError, match=r"quantity must be one of .*, got 'size'"):
        found.figure("size")

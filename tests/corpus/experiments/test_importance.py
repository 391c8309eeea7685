from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter

import prosect
from corpus.sentences import sentences
from prosect import corpus
from prosect.corpus.experiments.importance import TERM_MEASURES
from support.families import FAMILIES, PAIRS, random_lens

TEXTS = sentences(11)


def plainly(lens: prosect.Lens, special: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread over all tokens at once, [measure, term, layer+1]."""
    found = []
    for text in TEXTS:
        trace = lens.trace(text)
        terms = trace.terms()
        for i, token in enumerate(trace.tokens):
            if special or not token.special:
                e, parts = terms.whole[:, i].double(), terms.values[:, :, i].double()
                inner = (parts * e).sum(-1)
                size, length = parts.norm(dim=-1), e.norm(dim=-1)
                cosine = (inner / (size * length)).nan_to_num(0.0)
                found.append(np.stack([inner / length**2, size / length, cosine]))
    return np.mean(found, 0), np.std(found, 0, ddof=1)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in PAIRS])
def test_means_and_spreads_are_those_of_all_tokens_in_memory(family: str) -> None:
    lens = random_lens(family)
    found = corpus.importance(lens, TEXTS, batch=4, shard=4, progress=False)
    mean, spread = plainly(lens)
    tolerance = (
        1e-10
        if lens.trace("a").hidden.dtype.itemsize == 8 and not FAMILIES[family].float32_norms
        else 1e-5
    )
    np.testing.assert_allclose(found.mean[family], mean, atol=tolerance)
    np.testing.assert_allclose(found.spread[family], spread, atol=tolerance)


def test_importance_sums_to_one() -> None:
    found = corpus.importance(random_lens("bert"), TEXTS, progress=False)
    np.testing.assert_allclose(found.mean["bert"][0].sum(0), 1.0, atol=1e-12)


def test_special_tokens_can_be_left_out() -> None:
    lens = random_lens("bert")
    found = corpus.importance(lens, TEXTS, special=False, progress=False)
    np.testing.assert_allclose(found.mean["bert"], plainly(lens, special=False)[0], atol=1e-10)
    assert (
        found.about.tokens["tokens"]
        < corpus.importance(lens, TEXTS, progress=False).about.tokens["tokens"]
    )


def test_a_result_says_where_it_comes_from_and_comes_back_from_its_file(tmp_path: Path) -> None:
    models = {"small": random_lens("bert"), "other": random_lens("gpt2")}
    found = corpus.importance(models, [*TEXTS, "", "so " * 80], progress=False)
    assert "small, other: 11 texts (1 skipped)" in repr(found)
    assert found.about.versions["prosect"] == prosect.__version__
    assert len(set(found.about.models.values())) == 2
    found.save(tmp_path / "importance.json")
    again = corpus.load(tmp_path / "importance.json")
    assert isinstance(again, corpus.ImportanceResult)
    assert again.about == found.about
    assert again.to_frame().equals(found.to_frame())


def test_what_is_not_a_result_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "no.json"
    for content in ("", "[]", '{"result": "Nothing"}', '{"result": "ImportanceResult"}'):
        file.write_text(content)
        with pytest.raises(prosect.ProsectError, match=r"no\.json is not a file written by"):
            corpus.load(file)


def test_the_table_names_every_figure() -> None:
    lens = random_lens("bert")
    table = corpus.importance(lens, TEXTS, progress=False).to_frame()
    layers, terms = len(lens.anatomy.blocks) + 1, 4
    assert len(table) == layers * terms * len(TERM_MEASURES)
    assert table.query("layer == 0 and term == 'attention'")["mean"].eq(0).all()


def test_the_papers_figures_stand_beside_ours() -> None:
    beside = corpus.importance(random_lens("bert"), TEXTS, progress=False).compare()
    assert beside.loc[3, ("feed_forward", "bert-base-uncased (paper)")] == 0.448
    assert beside.loc[3, ("feed_forward", "bert")] != 0.448


def test_figures_show_every_term_and_model(tmp_path: Path) -> None:
    models = {"small": random_lens("bert"), "other": random_lens("gpt2")}
    found = corpus.importance(models, TEXTS, progress=False)
    figure = found.figure()
    assert [axes.get_title() for axes in figure.axes] == ["small", "other"]
    np.testing.assert_array_equal(figure.axes[1].lines[2].get_ydata(), found.mean["other"][0, 1])
    figure.savefig(tmp_path / "importance.pdf")
    shown, _ = DisplayFormatter().format(figure)  # as a notebook does
    assert shown["image/png"].startswith(b"\x89PNG")
    plot = found.plot("norm")
    assert [mark.labels for mark in plot.marks] == [
        ["input"],
        ["attention"],
        ["feed-forward"],
        ["bias"],
    ]
    np.testing.assert_array_equal(plot.marks[0].y, found.mean["small"][1, 0])
    with pytest.raises(prosect.ProsectError, match=r"measure must be one of .*, got 'size'"):
        found.figure("size")


def test_counts_are_of_each_model_where_they_differ() -> None:
    models = {"small": random_lens("bert"), "other": random_lens("gpt2")}
    tokens = corpus.importance(models, TEXTS, progress=False).about.tokens
    counts = {f"tokens of {n}": sum(len(m.tokens(t)) for t in TEXTS) for n, m in models.items()}
    assert tokens == counts


def test_no_token_that_counts_is_an_error_and_no_zero() -> None:
    with pytest.raises(prosect.ProsectError, match="only special tokens for bert"):
        corpus.importance(random_lens("bert"), ["[SEP]"], special=False, progress=False)
    with pytest.raises(prosect.ProsectError, match="special must be True or False"):
        corpus.importance(random_lens("bert"), TEXTS, special="no")


def test_a_model_may_have_any_name_and_a_file_any_folder(tmp_path: Path) -> None:
    found = corpus.importance({"about": random_lens("bert")}, TEXTS, progress=False)
    found.save(tmp_path / "new" / "importance.json")
    assert corpus.load(tmp_path / "new" / "importance.json").to_frame().equals(found.to_frame())

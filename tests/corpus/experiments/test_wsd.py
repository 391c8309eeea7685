from __future__ import annotations

import importlib
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import prosect
from corpus.annotated import senses
from prosect import corpus
from prosect.corpus.data.readers import SenseSentence
from prosect.corpus.experiments.subsets import indicator, subsets_of
from prosect.corpus.experiments.word_terms import word_vectors
from prosect.corpus.experiments.wsd import Instances, _requests, senses_of
from prosect.corpus.statistics.classifier import Training, predictions
from prosect.corpus.statistics.scores import agreement, micro_f1
from support.families import random_lens

SENTENCES = senses()
QUICK: dict[str, Any] = {"training": Training(epochs=3), "seeds": 2, "progress": False}


def vectors(lens: prosect.Lens) -> list[tuple[tuple[int, int], str, str, np.ndarray]]:
    """Sentence and word, lemma, sense and terms [term, d] of every instance, the plain way."""
    found = []
    for number, sentence in enumerate(SENTENCES):
        trace = lens.trace(" ".join(sentence.words))
        terms = trace.terms().values[:, -1]
        for w, (lemma, sense) in enumerate(zip(sentence.lemmas, sentence.senses, strict=True)):
            if sense is None or lemma not in ("bank", "right"):
                continue
            start = len(" ".join([*sentence.words[:w], ""]))
            end = start + len(sentence.words[w])
            own = [
                i
                for i, token in enumerate(trace.tokens)
                if token.span and token.span[0] < end and token.span[1] > start
            ]
            found.append(((number, w), str(lemma), sense, terms[:, own].sum(1).numpy()))
    return found


# --- what the instances are ---------------------------------------------------------------------


def test_lemmas_of_one_sense_are_dropped() -> None:
    own = senses_of(SENTENCES)
    assert own == {
        "bank": [("bank", "money"), ("bank", "river")],
        "right": [("right", "due"), ("right", "now")],
    }
    items = _requests(SENTENCES, own)
    assert [item.number for item in items] == list(range(48))
    for item in items:
        lemmas = [SENTENCES[item.number].lemmas[w] for w in item.words]
        assert lemmas in (["bank"], ["right", "bank"])
        words = [SENTENCES[item.number].words[w] for w in item.words]
        assert [item.text[start:end] for start, end in item.spans] == words
    with pytest.raises(prosect.ProsectError, match="No lemma has several senses"):
        senses_of([sentence for sentence in SENTENCES[:24] if "river" in sentence.senses][:1])


def instances(count: int) -> Instances:
    """One word a sentence; lemma l0 has two senses, l1 three, l2 four, and "s0" is one of each."""
    sentences = []
    for i in range(count):
        lemma = f"l{i % 3}"
        sentences.append(
            SenseSentence((f"a{i}", "b"), (None, lemma), (None, f"s{i // 3 % (2 + i % 3)}"))
        )
    own = {lemma: list(pairs) for lemma, pairs in senses_of(sentences).items()}
    return Instances.of(sentences, [(i, 1) for i in range(count)], own)


def test_a_sense_is_that_of_its_lemma_though_another_has_one_of_the_same_name() -> None:
    made = instances(60)
    assert made.allowed.shape == (60, 4)
    for lemma, label, allowed in zip(made.lemmas, made.labels, made.allowed, strict=True):
        own = allowed[allowed >= 0]
        assert label in own
        assert {made.senses[i][0] for i in own} == {lemma}
        assert [made.senses[i] for i in own] == sorted(s for s in made.senses if s[0] == lemma)


@pytest.mark.parametrize("count", [10, 57, 100])
def test_folds_are_eighty_ten_ten_and_test_each_instance_once(count: int) -> None:
    folds = instances(count).folds(3, 10)
    assert sorted(i for *_, test in folds for i in test) == list(range(count))
    for train, valid, test in folds:
        assert sorted([*train, *valid, *test]) == list(range(count))
        assert abs(len(valid) - count / 10) < 1
        assert abs(len(test) - count / 10) < 1
    assert not np.array_equal(folds[0][2], instances(count).folds(4, 1)[0][2])
    assert np.array_equal(folds[0][2], instances(count).folds(3, 1)[0][2])


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_copies_of_an_instance_are_in_one_part(copies: int) -> None:
    apart = [
        SenseSentence((s.words[0], f"{s.words[1]} ", *s.words[2:]), s.lemmas, s.senses)
        for s in SENTENCES
    ]
    given = [*SENTENCES, *apart * (copies - 1)]
    own = senses_of(given)
    places = [(item.number, word) for item in _requests(given, own) for word in item.words]
    folds = Instances.of(given, places, own).folds(0, 10)
    assert sorted(i for *_, test in folds for i in test) == list(range(72 * copies))
    for fold in folds:
        sides = [{(places[i][0] % 48, places[i][1]) for i in part} for part in fold]
        assert sum(map(len, sides)) == len(set.union(*sides)) == 72
    # one by one otherwise, as in the paper: a sentence may be in two parts
    train, _, test = folds[0]
    assert {places[i][0] for i in train} & {places[i][0] for i in test}


def test_the_baseline_is_the_commonest_sense_in_training() -> None:
    made = instances(60)
    train, _, test = made.folds(0, 1)[0]
    for i, said in zip(test, made.most_frequent(train, test), strict=True):
        seen = Counter(int(made.labels[j]) for j in train if made.lemmas[j] == made.lemmas[i])
        most = max(seen.values())
        assert said == min(sense for sense, number in seen.items() if number == most)
    # of a lemma that is new, the first in the alphabet; what is not in training does not count
    new = np.array([i for i in range(60) if made.lemmas[i] == "l2"])
    others = np.array([i for i in range(60) if made.lemmas[i] != "l2"])
    assert made.unseen(others, new) == len(new)
    assert made.unseen(train, test) == 0
    assert {made.senses[i] for i in made.most_frequent(others, new)} == {("l2", "s0")}


# --- the experiment -----------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_neighbours_are_those_of_a_plain_search(family: str, metric: Any) -> None:
    lens = random_lens(family)
    found = corpus.wsd(lens, SENTENCES, k=3, metric=metric, split=7, folds=10, **QUICK)
    given = vectors(lens)
    assert found.about.tokens["instances"] == len(given) == 72
    places = [place for place, *_ in given]
    folds = Instances.of(SENTENCES, places, senses_of(SENTENCES)).folds(7, 10)
    for row, subset in enumerate(subsets_of(lens.anatomy.terms)):
        chosen = [lens.anatomy.terms.index(term) for term in subset]
        hits, by_text = 0, defaultdict(list)
        for train, _, test in folds:
            for i in test:
                (number, _), lemma, sense, terms = given[i]
                x = terms[chosen].sum(0)
                own = [j for j in train if given[j][1] == lemma]
                ys = [given[j][3][chosen].sum(0) for j in own]
                if metric == "l2":
                    far = np.array([np.linalg.norm(x - y) for y in ys])
                    far /= far.max() or 1.0
                else:
                    far = np.array([-x @ y / np.sqrt((x @ x) * (y @ y)) for y in ys])
                # to five decimals: the inputs of equal words differ in length alone
                nearest = np.argsort(far.round(5), kind="stable")[:3]
                votes = Counter(given[own[n]][2] for n in nearest)
                right = votes.most_common(1)[0][0] == sense
                hits += right
                by_text[number].append(right)
        assert found.knn[family][row] == pytest.approx(hits / 72)
        gaps = [sum(x) - len(x) * hits / 72 for x in by_text.values()]
        texts = len(gaps)
        error = np.sqrt(texts / (texts - 1) * np.square(gaps).sum()) / 72
        assert found.knn_error[family][row] == pytest.approx(error)


def test_classifiers_and_agreement_are_those_of_the_predictions() -> None:
    lens, how = random_lens("bert"), Training(epochs=3)
    found = corpus.wsd(lens, SENTENCES, split=2, folds=2, **QUICK)
    own = senses_of(SENTENCES)
    words = word_vectors(lens, _requests(SENTENCES, own), -1, progress=False)
    made = Instances.of(SENTENCES, words.positions, own)
    examples = made.examples(words.terms["bert"], "cpu")
    mix = indicator(subsets_of(words.names["bert"]), words.names["bert"])
    said, gold = [], []
    for fold in made.folds(2, 2):
        train, valid, test = (examples[part] for part in fold)
        said.append(predictions(train, valid, test, mix, 4, seeds=[0, 1], training=how))
        gold.append(made.labels[fold[2]])
    right = np.concatenate(said, -1) == np.concatenate(gold)
    np.testing.assert_allclose(found.classifier["bert"], right.mean(-1))
    expected = agreement(np.concatenate(said, -1), micro_f1)
    np.testing.assert_allclose(found.classifier_agreement["bert"], expected)
    both = found.agreement()
    assert both.loc["h", "i"] == expected[0, 1]  # classifiers in the lower triangle
    assert both.loc["i", "h"] == found.knn_agreement["bert"][0, 1]
    assert both.loc["h", "h"] == expected[1, 1] < 1  # between seeds


def test_what_attention_alone_tells_is_told_by_the_subsets_that_have_it(monkeypatch: Any) -> None:
    own = senses_of(SENTENCES)
    words = word_vectors(random_lens("bert"), _requests(SENTENCES, own), -1, progress=False)
    generator = torch.Generator().manual_seed(0)
    terms = 0.5 * torch.randn(4, len(words.positions), 24, generator=generator)
    labels = Instances.of(SENTENCES, words.positions, own).labels
    terms[1] += 9 * torch.eye(24)[labels]
    told = replace(words, terms={"bert": terms})
    module = importlib.import_module("prosect.corpus.experiments.wsd")
    monkeypatch.setattr(module, "word_vectors", lambda *_, **__: told)
    how = Training(epochs=20, batch=16, best="loss")
    found = corpus.wsd(random_lens("bert"), SENTENCES, folds=10, **{**QUICK, "training": how})
    for subset, *scores in found.to_frame()[["subset", "knn", "classifier"]].itertuples(
        index=False
    ):
        if "h" in subset or subset == "all":
            assert min(scores) > 0.85, subset
        else:
            assert max(scores) < 0.7, subset  # chance is a half


def test_subsets_seeds_and_states_can_be_chosen() -> None:
    lens = random_lens("bert")
    found = corpus.wsd(
        lens, SENTENCES, subsets=["f+i", "h"], state=1, folds=10, **{**QUICK, "seeds": [5, 9, 7]}
    )
    assert found.subsets == {"bert": ["h", "i+f"]}
    assert found.classifier["bert"].shape == (3, 2)
    assert found.about.seeds == (5, 9, 7)
    assert found.about.settings["state"] == 1
    assert found.about.settings["subsets"] == ["f+i", "h"]
    other = corpus.wsd(lens, SENTENCES, subsets=["f+i", "h"], folds=10, **QUICK)
    assert (other.knn["bert"] != found.knn["bert"]).any()


def test_the_same_is_found_again_and_from_a_checkpoint(tmp_path: Path) -> None:
    lens = random_lens("bert")
    options = {**QUICK, "batch": 5, "shard": 10, "checkpoint": tmp_path}
    first, again = (corpus.wsd(lens, SENTENCES, **options) for _ in range(2))
    assert first.to_frame().equals(again.to_frame())
    assert len(list(tmp_path.rglob("*.npz"))) == 5


def test_models_stand_side_by_side_and_results_come_back_from_their_file(tmp_path: Path) -> None:
    lenses = {"one": random_lens("bert"), "other": random_lens("gpt2", seed=1)}
    found = corpus.wsd(lenses, SENTENCES, **QUICK)
    table = found.to_frame()
    assert list(table.model.unique()) == ["one", "other"]
    assert len(table) == 30
    assert table.most_frequent_sense.nunique() == 1
    assert table.classifier_spread.notna().all()
    found.save(tmp_path / "wsd.json")
    again = corpus.load(tmp_path / "wsd.json")
    assert isinstance(again, corpus.WsdResult)
    assert again.about == found.about
    assert again.to_frame().equals(table)
    assert again.agreement("other").equals(found.agreement("other"))
    beside = again.compare()
    assert beside.loc["h", ("bert-base-uncased (paper)", "mean")] == 0.667
    assert beside.loc["all", ("bert-base-uncased (paper)", "mean")] == 0.66
    assert beside.loc["all", ("other", "mean")] == found.classifier["other"].mean(0)[-1]
    with pytest.raises(prosect.ProsectError, match="model must be one of one, other, got 'third'"):
        found.agreement("third")


def test_figures_show_every_subset(tmp_path: Path) -> None:
    found = corpus.wsd(random_lens("bert"), SENTENCES, **QUICK)
    labels = found.subsets["bert"]
    figure = found.figure()
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == labels
    near, heads = (container[0].get_ydata() for container in axes.containers)
    np.testing.assert_array_equal(near, found.knn["bert"])
    np.testing.assert_array_equal(heads, found.classifier["bert"].mean(0))
    assert found.most_frequent in [line.get_ydata()[0] for line in axes.lines]
    figure.savefig(tmp_path / "wsd.pdf")
    heat = found.figure_agreement()
    title = heat.axes[0].get_title().replace("\n", " ")
    assert title == "bert: agreement, neighbours above, classifiers below"
    shown = {
        (round(t.get_position()[1]), round(t.get_position()[0])): t for t in heat.axes[0].texts
    }
    assert len(shown) == 15 * 15
    assert shown[0, 1].get_text() == f"{100 * found.knn_agreement['bert'][0, 1]:.0f}"
    assert shown[1, 0].get_text() == f"{100 * found.classifier_agreement['bert'][0, 1]:.0f}"
    heat.savefig(tmp_path / "agreement.pdf")
    plot = found.plot()
    legend = [label for mark in plot.marks if mark.display_legend for label in mark.labels]
    assert legend == [
        "nearest neighbours, ± standard error",
        "classifier, ± spread over seeds",
        "most frequent sense",
    ]
    np.testing.assert_array_equal(plot.marks[1].y, found.knn["bert"])
    (cells,) = found.plot_agreement().marks
    assert cells.color[0, 1] == found.knn_agreement["bert"][0, 1]
    assert list(cells.row) == list(cells.column) == labels


def test_one_seed_has_no_spread_and_is_drawn_without_bars() -> None:
    found = corpus.wsd(random_lens("bert"), SENTENCES, **{**QUICK, "seeds": 1})
    assert found.to_frame().classifier_spread.isna().all()
    found.figure().canvas.draw()
    found.plot()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"metric": "l1"}, "metric must be one of cosine, l2, got 'l1'"),
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"folds": 0}, "folds must be between 1 and 10"),
        ({"folds": 11}, "folds must be between 1 and 10"),
        ({"seeds": 0}, "seeds must be a count"),
        ({"subsets": ["x"]}, "got 'x'"),
        ({"subsets": ["s"]}, "got 's'"),
        ({"state": 9}, "state must be between -4 and 3"),
        ({"state": None}, "state must be an integer, got None"),
        ({"k": 2.5}, "k must be an integer, got 2.5"),
        ({"folds": 1.5}, "folds must be an integer, got 1.5"),
        ({"split": "a"}, "split must be an integer, got 'a'"),
        ({"training": {"epochs": 3}}, "training must be a prosect.corpus.Training.* got dict"),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(prosect.ProsectError, match=message):
        corpus.wsd(random_lens("bert"), SENTENCES, **{**QUICK, **wrong})


def test_too_few_instances_are_refused() -> None:
    with pytest.raises(prosect.ProsectError, match=r"10 distinct instances .* got 6"):
        corpus.wsd(random_lens("bert"), SENTENCES[:6] * 3, **QUICK)
    with pytest.raises(TypeError, match="Sentence 0 must be a SenseSentence"):
        corpus.wsd(random_lens("bert"), ["a text"], **QUICK)

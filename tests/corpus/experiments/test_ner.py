from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seqeval.metrics
import sklearn.metrics
import torch

import prosect
from corpus.annotated import names
from prosect import corpus
from prosect.corpus.data.readers import TaggedSentence
from prosect.corpus.experiments.ner import TaggedWords, split_sentences
from prosect.corpus.experiments.word_terms import word_vectors
from prosect.corpus.statistics.classifier import Training, predictions
from prosect.corpus.statistics.scores import agreement, macro_f1
from support.families import random_lens

SENTENCES = names()
QUICK: dict[str, Any] = {"training": Training(epochs=3, rate=0.02), "seeds": 2, "progress": False}


@pytest.fixture(scope="module")
def lens() -> prosect.Lens:
    return random_lens("bert")


def everything(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the experiment learned from and said, while it runs."""
    module, kept = importlib.import_module("prosect.corpus.experiments.ner"), {}

    def watched_predictions(*given: Any, **options: Any) -> np.ndarray:
        kept["examples"] = given[:3]
        kept["said"] = predictions(*given, **options)
        return kept["said"]

    def watched_words(*given: Any, **options: Any) -> Any:
        kept["words"] = word_vectors(*given, **options)
        return kept["words"]

    monkeypatch.setattr(module, "predictions", watched_predictions)
    monkeypatch.setattr(module, "word_vectors", watched_words)
    return kept


# --- the split ----------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [10, 36, 105])
def test_sentences_are_split_eighty_ten_ten(given: int) -> None:
    train, valid, test = split_sentences(np.arange(given), 0, 4)
    assert sorted([*train, *valid, *test]) == list(range(given))
    assert len(valid) == len(test) == max(1, round(given / 10))
    assert split_sentences(np.arange(given), 0, 4) == (train, valid, test)
    assert split_sentences(np.arange(given), 0, 5) != (train, valid, test)


def test_copies_of_a_sentence_are_on_one_side(
    lens: prosect.Lens, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaced = [TaggedSentence((f"{s.words[0]} ", *s.words[1:]), s.tags) for s in SENTENCES]
    given, kept = [*SENTENCES, *spaced, *SENTENCES], everything(monkeypatch)
    found = corpus.ner(lens, given, **{**QUICK, "seeds": 1, "subsets": ["h"]})
    sizes = [len(part) for part in kept["examples"]]
    assert sum(sizes) == len(kept["words"].positions)
    parts = split_sentences(np.tile(np.arange(36), 3), 0, 0)
    assert [len(part) for part in parts] == [3 * 28, 3 * 4, 3 * 4]
    for part, size in zip(parts, sizes, strict=True):
        assert size == sum(len(given[i].words) for i in part)
        assert part == {i % 36 + 36 * copy for i in part for copy in range(3)}
    assert "test sentences also in training" not in found.about.tokens


def test_test_sentences_that_are_in_training_too_are_counted(lens: prosect.Lens) -> None:
    options = {**QUICK, "seeds": 1, "subsets": ["h"]}
    for test, count in ((SENTENCES, 20), (SENTENCES[18:], 2), (SENTENCES[20:], 0)):
        found = corpus.ner(lens, SENTENCES[:20], test=test, **options)
        assert found.about.tokens["test sentences also in training"] == count


def test_given_test_sentences_are_the_test() -> None:
    train, valid, test = split_sentences(np.arange(40), 7, 0)
    assert test == set(range(40, 47))
    assert sorted([*train, *valid]) == list(range(40))
    assert len(valid) == 4


def test_no_word_of_a_sentence_is_on_two_sides(
    lens: prosect.Lens, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = everything(monkeypatch)
    corpus.ner(lens, SENTENCES, split=6, **QUICK)
    words = kept["words"]
    sides = []
    for part, numbers in zip(kept["examples"], split_sentences(np.arange(36), 0, 6), strict=True):
        own = [i for i, (s, _) in enumerate(words.positions) if s in numbers]
        assert torch.equal(part.terms, words.terms["bert"][:, own])
        sides.append({words.positions[i][0] for i in own})
    assert not sides[0] & sides[1] | sides[0] & sides[2] | sides[1] & sides[2]


# --- the scores ---------------------------------------------------------------------------------


@pytest.mark.parametrize("apart", [False, True])
def test_scores_are_those_of_scikit_learn_and_seqeval(
    lens: prosect.Lens, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    given, test = (SENTENCES[::2], SENTENCES[1::2]) if apart else (SENTENCES, None)
    kept = everything(monkeypatch)
    found = corpus.ner(lens, given, test=test, split=1, **QUICK)
    tested = test or [given[i] for i in sorted(split_sentences(np.arange(36), 0, 1)[2])]
    gold = [list(sentence.tags) for sentence in tested]
    flat = [tag for row in gold for tag in row]
    assert found.about.tokens["test words"] == len(flat)
    assert found.tags == ["O", *sorted(set(flat) - {"O"})]
    assert found.support.tolist() == [flat.count(tag) for tag in found.tags]
    classes = ["O", *sorted({tag for s in SENTENCES for tag in s.tags} - {"O"})]
    for seed, run in enumerate(kept["said"]):
        for subset, row in enumerate(run):
            said = [classes[i] for i in row]
            each = sklearn.metrics.f1_score(
                flat, said, labels=found.tags, average=None, zero_division=0
            )
            np.testing.assert_allclose(found.by_tag["bert"][seed, subset], each)
            assert found.macro["bert"][seed, subset] == pytest.approx(each.mean())
            rest = iter(said)
            rows = [[next(rest) for _ in row] for row in gold]
            spans = seqeval.metrics.f1_score(gold, rows, zero_division=0)
            assert found.spans["bert"][seed, subset] == pytest.approx(spans)
    np.testing.assert_allclose(found.agreements["bert"], agreement(kept["said"], macro_f1))


def test_whole_names_count_by_type_beginning_and_end() -> None:
    tagged = TaggedWords(
        ["O", "B-a", "I-a", "B-b", "I-b"],
        np.zeros(0, int),
        (np.zeros(0, int),) * 3,
        gold=np.array([1, 2, 0, 3, 0, 1]),
        read=np.ones(6, bool),
        forms=([], []),
        lengths=[4, 2],
    )
    assert tagged.span_f1(tagged.gold) == 1.0
    # of three names one is right; one ends too early, one is of the wrong type
    assert tagged.span_f1(np.array([1, 0, 0, 3, 0, 3])) == pytest.approx(1 / 3)
    # a name does not go on into the next sentence
    assert tagged.span_f1(np.array([1, 2, 0, 3, 4, 1])) == pytest.approx(2 * 3 / (3 + 4))
    assert tagged.span_f1(np.zeros(6, int)) == 0.0


def test_baselines_are_o_and_the_usual_tag_of_each_word(lens: prosect.Lens) -> None:
    given, test = SENTENCES[::2], SENTENCES[1::2]
    found = corpus.ner(lens, given, test=test, **QUICK)
    train = split_sentences(np.arange(len(given)), len(test), 0)[0]
    seen: dict[str, Counter[str]] = {}
    for i in train:
        for word, tag in zip(given[i].words, given[i].tags, strict=True):
            seen.setdefault(word, Counter())[tag] += 1
    gold = [list(sentence.tags) for sentence in test]
    flat = [tag for row in gold for tag in row]
    for scores, of_word in (
        (found.majority, lambda word: "O"),
        (
            found.words,
            lambda word: (
                min(seen[word], key=lambda t: (-seen[word][t], t != "O", t))
                if word in seen
                else "O"
            ),
        ),
    ):
        rows = [[of_word(word) for word in sentence.words] for sentence in test]
        macro = sklearn.metrics.f1_score(
            *(flat, [tag for row in rows for tag in row]),
            labels=found.tags,
            average="macro",
            zero_division=0,
        )
        assert scores == pytest.approx(
            [macro, seqeval.metrics.f1_score(gold, rows, zero_division=0)]
        )
    assert found.words[1] > 0.5 > found.majority[1] == 0


def test_words_that_no_token_covers_are_o_in_the_test_and_not_learned_from(
    lens: prosect.Lens, monkeypatch: pytest.MonkeyPatch
) -> None:
    blind = TaggedSentence(("\u200b", "Grace", "\u200b"), ("B-place", "B-person", "O"))
    long = TaggedSentence(("so",) * 80, ("O",) * 80)
    kept = everything(monkeypatch)
    found = corpus.ner(lens, [*SENTENCES, blind], test=[long, blind], **QUICK)
    assert found.about.skipped == 1
    assert found.about.tokens["words without a token"] == 4
    assert found.about.tokens["test words"] == 3
    assert kept["said"].shape[-1] == 1
    assert found.tags == ["O", "B-person", "B-place"]
    assert (found.by_tag["bert"][..., 2] == 0).all()  # never found
    learned = sum(len(part) for part in kept["examples"][:2])
    assert learned == sum(len(sentence.words) for sentence in SENTENCES) + 1


def test_other_schemes_are_read_as_bio(lens: prosect.Lens) -> None:
    def turned(sentence: TaggedSentence) -> TaggedSentence:
        tags = list(sentence.tags)
        for i, tag in enumerate(tags):
            end = tags[i + 1 : i + 2] != [f"I{tag[1:]}"]
            if end and tag != "O":
                tags[i] = f"{'S' if tag[0] == 'B' else 'E'}{tag[1:]}"
        return TaggedSentence(sentence.words, tuple(tags))

    assert turned(SENTENCES[0]).tags[:2] == ("B-person", "E-person")
    found = corpus.ner(lens, [turned(sentence) for sentence in SENTENCES], **QUICK)
    assert found.to_frame().equals(corpus.ner(lens, SENTENCES, **QUICK).to_frame())


def test_what_the_feed_forward_alone_tells_is_told_by_the_subsets_that_have_it(
    lens: prosect.Lens, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything_ = SENTENCES * 5
    tags = sorted({tag for sentence in SENTENCES for tag in sentence.tags})

    def told(models: Any, items: Any, state: int, **options: Any) -> Any:
        words = word_vectors(models, items, state, **options)
        labels = torch.tensor([tags.index(everything_[s].tags[w]) for s, w in words.positions])
        generator = torch.Generator().manual_seed(0)
        terms = 0.5 * torch.randn(4, len(labels), 24, generator=generator)
        terms[2] += 6 * torch.eye(24)[labels]
        return replace(words, terms={"bert": terms})

    monkeypatch.setattr(
        importlib.import_module("prosect.corpus.experiments.ner"), "word_vectors", told
    )
    how = Training(epochs=10, batch=32, best="macro_f1", rate=0.005)
    found = corpus.ner(lens, everything_, **{**QUICK, "training": how})
    table = found.to_frame()[:-2]  # without the baselines
    for subset, *scores in table[["subset", "macro_f1", "span_f1"]].itertuples(index=False):
        if "f" in subset or subset == "all":
            assert min(scores) > 0.9, subset
        else:
            assert max(scores) < 0.5, subset


# --- results ------------------------------------------------------------------------------------


def test_seeds_give_the_same_again(lens: prosect.Lens) -> None:
    first, again = (corpus.ner(lens, SENTENCES, **{**QUICK, "seeds": s}) for s in ([3, 8], [8, 3]))
    np.testing.assert_array_equal(first.by_tag["bert"], again.by_tag["bert"][::-1])
    assert first.about.seeds == (3, 8)
    assert first.about.settings["subsets"] is None


def test_the_best_epoch_is_by_macro_f1_unless_said_otherwise(lens: prosect.Lens) -> None:
    found = corpus.ner(lens, SENTENCES[:12], seeds=1, subsets=["c"], progress=False)
    assert found.about.settings["training"]["best"] == "macro_f1"
    how = Training(epochs=2)
    found = corpus.ner(lens, SENTENCES[:12], seeds=1, subsets=["c"], training=how, progress=False)
    assert found.about.settings["training"]["best"] == "macro_f1"
    assert found.about.settings["training"]["epochs"] == 2


def test_pretrained_and_tuned_stand_side_by_side(tmp_path: Path) -> None:
    lenses = {"pretrained": random_lens("bert"), "tuned": random_lens("bert", seed=1)}
    found = corpus.ner(lenses, SENTENCES, **QUICK)
    table = found.to_frame()
    assert table.model.tolist() == ["pretrained"] * 15 + ["tuned"] * 15 + ["baseline"] * 2
    assert table.macro_f1_spread[:30].notna().all()
    baselines = table.set_index("subset")[["macro_f1", "span_f1"]]
    assert baselines.loc["every word O"].tolist() == found.majority
    assert baselines.loc["the word's usual tag"].tolist() == found.words
    both = found.agreement()
    assert both.loc["i", "h"] == found.agreements["pretrained"][0, 1]
    assert both.loc["h", "i"] == found.agreements["tuned"][1, 0]
    turned = found.agreement("tuned", "pretrained")
    assert turned.loc["h", "i"] == found.agreements["pretrained"][1, 0]
    found.save(tmp_path / "ner.json")
    again = corpus.load(tmp_path / "ner.json")
    assert isinstance(again, corpus.NerResult)
    assert again.to_frame().equals(table)
    assert again.about == found.about
    beside = again.compare()
    assert beside.loc["h", ("bert-base-uncased (paper)", "mean")] == pytest.approx(0.329)
    assert beside.loc["all", ("bert-base-uncased, tuned (paper)", "mean")] == pytest.approx(0.385)
    assert beside.loc["all", ("tuned", "mean")] == found.macro["tuned"].mean(0)[-1]
    with pytest.raises(prosect.ProsectError, match=r"model must be one of .* got 'third'"):
        found.agreement("pretrained", "third")


def test_figures_show_every_subset_and_model(tmp_path: Path) -> None:
    lenses = {"pretrained": random_lens("bert"), "tuned": random_lens("bert", seed=1)}
    found = corpus.ner(lenses, SENTENCES, **QUICK)
    figure = found.figure()
    assert [axes.get_title() for axes in figure.axes] == ["pretrained", "tuned"]
    macro, spans = (container[0].get_ydata() for container in figure.axes[1].containers)
    np.testing.assert_array_equal(macro, found.macro["tuned"].mean(0))
    np.testing.assert_array_equal(spans, found.spans["tuned"].mean(0))
    figure.savefig(tmp_path / "ner.pdf")
    for axes in figure.axes:
        ends = np.array([c[2][0].get_segments() for c in axes.containers])[..., 1]
        assert 0 <= ends.min() <= ends.max() <= 1  # no bar leaves what a score can be
        levels = [line for line in axes.lines if len(line.get_xdata()) == 2]
        assert [line.get_linestyle() for line in levels] == ["--", ":"]
    heat = found.figure_agreement()
    assert heat.axes[0].get_title().replace("\n", " ") == "agreement: pretrained above, tuned below"
    plot = found.plot("tuned")
    assert plot.title == "tuned"
    np.testing.assert_array_equal(plot.marks[1].y, found.macro["tuned"].mean(0))
    (cells,) = found.plot_agreement().marks
    assert cells.color[1, 0] == found.agreements["tuned"][1, 0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seeds": 0}, "seeds must be a count"),
        ({"subsets": ["x"]}, "got 'x'"),
        ({"state": 9}, "state must be between -4 and 3"),
        ({"state": "last"}, "state must be an integer, got 'last'"),
        ({"split": 0.5}, "split must be an integer, got 0.5"),
        ({"training": 3}, "training must be a prosect.corpus.Training.* got int"),
        ({"test": []}, "at least one sentence"),
    ],
)
def test_wrong_arguments_are_refused(
    lens: prosect.Lens, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(prosect.ProsectError, match=message):
        corpus.ner(lens, SENTENCES, **{**QUICK, **wrong})


def test_too_little_to_learn_from_or_to_test_is_refused(lens: prosect.Lens) -> None:
    with pytest.raises(prosect.ProsectError, match="at least 10 distinct sentences, got 9"):
        corpus.ner(lens, SENTENCES[:9] * 2, **QUICK)
    with pytest.raises(TypeError, match="Sentence 0 must be a TaggedSentence"):
        corpus.ner(lens, ["a text"], **QUICK)
    long = TaggedSentence(("so",) * 80, ("O",) * 80)
    with pytest.raises(prosect.ProsectError, match=r"no test examples.* too long"):
        corpus.ner(lens, SENTENCES, test=[long], **QUICK)

"""Predicting tokens from subsets of the terms: held against one prediction at a time."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import prosect
from families import TEXTS, random_lens, random_model
from prosect import corpus, predict
from prosect.anatomy.vocabulary import TERMS
from prosect.corpus import Masking, Training
from prosect.corpus.masking import Chooser, content
from prosect.corpus.mlm import TEST, TRAIN, VALID, Extract, Scores, split
from prosect.corpus.subsets import label_of, subsets_of

HEADS = ["bert", "roberta", "electra-small", "albert", "distilbert", "deberta-v2", "modernbert"]
HEADS += ["bert-decoder", "gpt2", "llama", "gemma2", "opt-post-norm", "bloom"]
WORDS = "the river bank raised its rates behind a road where seven ducklings crossed on Thursday"
MANY = [
    " ".join(WORDS.split()[number % 5 : number % 5 + 4 + number % 6]) + f" {TEXTS[number % 3]}"
    for number in range(60)
]
QUICK = Training(shape="linear", epochs=3, patience=2, batch=32)


def mlm(lens: Any, texts: Any = MANY, **options: Any) -> corpus.MlmResult:
    settings: dict[str, Any] = {"seeds": (0, 1), "training": QUICK, "progress": False}
    return corpus.mlm(lens, texts, **{**settings, **options})


@cache
def hinted() -> prosect.Lens:
    """A random model whose head says other things of other states, and words of the texts.

    So some of its predictions are right; leave it as it is.
    """
    lens = random_lens("bert")
    model: Any = lens.model
    ids = {token.id for text in MANY for token in lens.tokens(text) if not token.special}
    with torch.no_grad():
        logits = [
            model(input_ids=torch.tensor([[token.id for token in trace.tokens]])).logits[0]
            for trace in lens.traces(MANY)
        ]
        model.cls.predictions.bias -= torch.cat(logits).mean(0)
        model.cls.predictions.bias[sorted(ids)] += 8.0
    return lens


@pytest.mark.parametrize("family", HEADS)
def test_the_default_head_predicts_what_one_prediction_after_the_other_gives(family: str) -> None:
    lens = random_lens(family)
    masking = Masking(share=0.3)
    labels = tuple(label_of(subset, TERMS) for subset in subsets_of(TERMS))
    found = Extract(masking, ("default", "learned"), labels).measure(lens, MANY[:6])
    row = 0
    for text in MANY[:6]:
        chosen = Chooser(lens, masking)(text)
        trace = lens.trace(text, instead=chosen.instead)
        for place, target in zip(chosen.positions, chosen.targets, strict=True):
            best = [trace.predict(subset, place, k=1)[0].id for subset in subsets_of(TERMS)]
            assert found["default"][row].tolist() == best
            assert found["targets"][row] == target
            assert found["texts"][row] == content(text)
            terms = trace.terms().values[:, -1, place]
            np.testing.assert_allclose(found["terms"][row], terms, rtol=1e-5, atol=1e-5)
            row += 1
    assert row == len(found["targets"]) > 15
    assert bool(found["causal"]) == lens.anatomy.causal


@pytest.mark.parametrize("family", ["bert", "electra-small", "gpt2", "gemma2"])
def test_all_terms_predict_what_the_model_itself_predicts_of_what_it_reads(family: str) -> None:
    lens = hinted() if family == "bert" else random_lens(family)
    model: Any = lens.model
    masking = Masking(share=0.5)
    expected = []
    for text in MANY[:8]:
        chosen = Chooser(lens, masking)(text)
        ids = [token.id for token in lens.tokens(text)]
        for place, id in chosen.instead.items():
            ids[place] = id
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0, chosen.positions]
        expected += logits.argmax(-1).tolist()
    found = Extract(masking, ("default",), ("all",)).measure(lens, MANY[:8])
    assert found["default"][:, 0].tolist() == expected
    assert len(set(expected)) > 3
    assert "terms" not in found


def test_accuracy_is_the_share_of_targets_that_are_predicted() -> None:
    lens, masking = hinted(), Masking(share=0.4)
    found = mlm(lens, MANY, heads=["default"], masking=masking, batch=7)
    arrays = Extract(masking, ("default",), tuple(found.subsets)).measure(lens, MANY)
    right = arrays["default"] == arrays["targets"][:, None]
    assert 0.02 < right.mean() < 0.98
    np.testing.assert_allclose(found.accuracy["default"], right.mean(0), rtol=1e-12)
    assert found.about.tokens == {"targets": len(right)}
    assert found.baseline["default"] == np.bincount(arrays["targets"]).max() / len(right)
    assert found.objective == "masked token"
    assert mlm(random_lens("gpt2"), MANY[:3], heads=["default"]).objective == "next token"


@pytest.mark.data
@pytest.mark.skipif(find_spec("rxnmapper") is None, reason="the weights are not installed")
def test_real_weights_restore_reactions_from_all_terms_and_fail_on_the_bias() -> None:
    chains = ["C", "CC", "CCC", "CC(C)", "CCCC", "C1CCCC1"]
    reactions = [f"O=C(O){a}.{b}O>>{b}OC(=O){a}" for a in chains for b in chains]
    frame = mlm("rxnmapper", reactions, heads=["default"]).to_frame()["default"]
    assert frame["all"] > 0.8
    assert frame["all"] > frame["most frequent"] + 0.3
    assert frame["c"] < 0.1
    assert frame["h"] > frame["i"] + 0.2


def test_the_result_does_not_depend_on_how_the_work_is_cut(tmp_path: Path) -> None:
    lens = hinted()
    whole = mlm(lens, MANY[:20])
    for options in ({"batch": 1}, {"batch": 3, "shard": 3}, {"shard": 7, "checkpoint": tmp_path}):
        found = mlm(lens, MANY[:20], **options)
        for name, accuracy in whole.accuracy.items():
            np.testing.assert_allclose(found.accuracy[name], accuracy, rtol=1e-12)
            np.testing.assert_allclose(found.error[name], whole.error[name], rtol=1e-9)
            np.testing.assert_allclose(found.agreement[name], whole.agreement[name], rtol=1e-12)
        np.testing.assert_allclose(found.by_seed, whole.by_seed, rtol=1e-12)
        assert found.baseline == whole.baseline


def test_a_checkpoint_spares_the_model_a_second_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lens = random_lens("bert")
    first = mlm(lens, MANY[:20], checkpoint=tmp_path)
    monkeypatch.setattr(prosect.Lens, "traces", None)  # nothing is traced again
    again = mlm(lens, MANY[:20], checkpoint=tmp_path)
    np.testing.assert_array_equal(again.by_seed, first.by_seed)
    other = mlm(lens, MANY[:20], checkpoint=tmp_path, seeds=(2, 3, 4))
    assert other.by_seed.shape == (3, 15)
    with pytest.raises(TypeError):  # another masking is another pass
        mlm(lens, MANY[:20], checkpoint=tmp_path, masking=Masking(seed=1))


# --- learned heads ------------------------------------------------------------------------------


def test_texts_are_split_by_content() -> None:
    texts = np.array([content(text) for text in MANY for _ in range(3)], np.uint64)
    part = split(texts, 0)
    assert all(len(set(part[texts == text])) == 1 for text in texts)
    whole = np.unique(texts)
    counts = [int(np.isin(whole, texts[part == p]).sum()) for p in (TRAIN, VALID, TEST)]
    assert counts[1:] == [round(len(whole) / 10)] * 2
    assert sum(counts) == len(whole)
    shuffled = np.random.default_rng(0).permutation(len(texts))
    np.testing.assert_array_equal(split(texts[shuffled], 0), part[shuffled])
    assert (split(texts, 1) != part).any()


def test_a_learned_head_finds_what_its_terms_say_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Features made up so that only h says the target: subsets with h are right, others guess."""
    random = np.random.default_rng(0)
    directions = 3 * random.normal(size=(7, 16))

    def told(self: Any, lens: Any, items: Any) -> dict[str, np.ndarray]:
        targets = np.array([content(text) % 7 + 100 for text in items], np.int64)
        terms = random.normal(size=(len(items), 4, 16))
        terms[:, 1] = directions[targets - 100]
        return {
            "targets": targets,
            "texts": np.array([content(text) for text in items], np.uint64),
            "terms": terms.astype(np.float32),
            "causal": np.bool_(False),
        }

    monkeypatch.setattr(Extract, "measure", told)
    texts = [f"the river {number}" for number in range(600)]
    training = Training(shape="linear", epochs=20, batch=32, rate=0.01)
    found = mlm(random_lens("bert"), texts, heads=["learned"], training=training)
    right = found.to_frame()["learned"]
    assert right["h"] > 0.97
    assert all(right[s] > 0.9 for s in found.subsets if "h" in s or s == "all")
    assert all(right[s] < 0.35 for s in found.subsets if "h" not in s and s != "all")
    assert found.about.tokens == {
        "targets": 600,
        "test targets": 60,
        "classes": 7,
        "test targets of no class": 0,
    }


def test_targets_that_training_texts_lack_count_as_errors() -> None:
    lens = random_lens("bert")
    found = mlm(lens, MANY, heads=["learned"], masking=Masking(share=0.2), subsets=["all"])
    counts = found.about.tokens
    assert counts["test targets of no class"] > 0
    most = 1 - counts["test targets of no class"] / counts["test targets"]
    assert found.by_seed.max() <= most
    assert found.baseline["learned"] <= most


def test_seeds_give_runs_of_their_own_and_a_spread() -> None:
    found = mlm(random_lens("bert"), MANY, seeds=(0, 1, 0), masking=Masking(share=0.4))
    np.testing.assert_array_equal(found.by_seed[0], found.by_seed[2])
    assert (found.by_seed[0] != found.by_seed[1]).any()
    np.testing.assert_allclose(found.accuracy["learned"], found.by_seed.mean(0))
    np.testing.assert_allclose(found.spread, found.by_seed.std(0, ddof=1))
    assert found.about.seeds == (0, 1, 0)
    alone = mlm(random_lens("bert"), MANY, seeds=(1,), masking=Masking(share=0.4), subsets=["f+i"])
    assert alone.subsets == ["i+f"]
    assert alone.by_seed[0, 0] == pytest.approx(found.by_seed[1, found.subsets.index("i+f")])
    assert np.isnan(alone.spread).all()


def test_a_model_without_a_head_learns_one_and_is_refused_its_own() -> None:
    lens = prosect.Lens(random_model("bert").base_model, random_lens("bert").tokenizer)
    with pytest.raises(
        prosect.UnsupportedModelError,
        match=r"^BertModel has no head .*, or learn heads alone, with heads=\['learned'\]\.$",
    ):
        mlm(lens)
    found = mlm(lens, heads=["learned"])
    assert set(found.accuracy) == {"learned"}
    same = mlm(random_lens("bert"), heads=["learned"])
    np.testing.assert_array_equal(found.by_seed, same.by_seed)


def test_the_head_of_a_pair_is_refused_and_one_on_its_encoder_is_learned() -> None:
    lens = random_lens("bart")
    with pytest.raises(prosect.UnsupportedModelError, match="head of bart sits on its decoder"):
        mlm(lens)
    assert mlm(lens, heads=["learned"]).by_seed.shape == (2, 15)


# --- figures ------------------------------------------------------------------------------------


def test_scores_are_those_of_a_plain_count() -> None:
    targets = np.array([5, 5, 6, 7, 5])
    texts = np.array([1, 1, 2, 2, 3], np.uint64)
    predicted = np.array(
        [
            [[5, 5], [5, 6], [6, 6], [5, 5], [5, 6]],
            [[5, 5], [6, 6], [6, 5], [5, 5], [5, 5]],
        ]
    )
    found = Scores.of(predicted, targets, texts, known=np.array([7, 7, 5]))
    np.testing.assert_allclose(found.accuracy, [[0.8, 0.4], [0.6, 0.4]])
    assert found.baseline == 0.2  # of 7, the most frequent of those known
    np.testing.assert_allclose(found.agreement, [[1, 0.7], [0.7, 1]])
    sums = np.array([[1.5, 1.0], [1.0, 0.5], [1.0, 0.5]])  # by text, the mean of the runs
    counts = np.array([2, 2, 1])
    ratio = sums.sum(0) / 5
    left = np.square(sums - ratio * counts[:, None]).sum(0)
    np.testing.assert_allclose(found.error, np.sqrt(left * 3 / 2) / 5)


def test_the_default_head_is_judged_on_the_learned_heads_targets_too() -> None:
    lens, masking = hinted(), Masking(share=1.0)
    found = mlm(lens, MANY, masking=masking)
    right: list[bool] = []
    texts = np.array([content(text) for text in MANY], np.uint64)
    part = split(texts, 0)
    for text in dict.fromkeys(t for t, p in zip(MANY, part, strict=True) if p == TEST):
        chosen = Chooser(lens, masking)(text)
        trace = lens.trace(text, instead=chosen.instead)
        times = MANY.count(text)
        for place, target in zip(chosen.positions, chosen.targets, strict=True):
            right += [trace.predict(position=place, k=1)[0].id == target] * times
    assert len(right) == found.about.tokens["test targets"]
    assert 0 < np.mean(right) < 1
    assert found.accuracy["default_test"][-1] == pytest.approx(np.mean(right))


def test_figures_are_there_and_a_saved_result_reads_back(tmp_path: Path) -> None:
    found = mlm(random_lens("bert"), MANY[:20])
    found.save(tmp_path / "mlm.json")
    again = corpus.load(tmp_path / "mlm.json")
    assert isinstance(again, corpus.MlmResult)
    assert again.about == found.about
    assert again.to_frame().equals(found.to_frame())
    np.testing.assert_array_equal(again.agreement["learned"], found.agreement["learned"])
    frame = found.to_frame()
    assert list(frame.index) == [*found.subsets, "most frequent"]
    assert list(frame.columns) == [
        *("default", "default_error", "default_test", "default_test_error"),
        *("learned", "learned_spread", "learned_error"),
    ]
    assert frame.loc["h+f", "default"] == found.accuracy["default"][7]
    paper = found.compare().xs("bert-base-uncased (paper)", axis=1, level=1)
    assert paper.loc["f"].tolist() == [1.36, 53.77]
    assert paper.notna().sum().sum() == 2
    (place,) = found.figure().axes
    assert [label.get_text() for label in place.get_xticklabels()] == found.subsets
    heights = [patch.get_height() for patch in place.patches]
    np.testing.assert_allclose(heights, [*found.accuracy["default"], *found.accuracy["learned"]])
    (mark,) = found.plot().marks
    np.testing.assert_allclose(mark.y, [found.accuracy["default"], found.accuracy["learned"]])
    assert list(mark.x) == found.subsets


def test_a_single_head_makes_a_table_and_figures_too() -> None:
    found = mlm(random_lens("bert"), MANY[:2], heads=["default"])
    assert list(found.to_frame().columns) == ["default", "default_error"]
    assert found.by_seed.shape == (0, 15)
    assert found.about.seeds == ()
    found.figure(), found.plot(), found.compare()


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": ["own"]}, "no head 'own': choose from default, learned"),
        ({"heads": []}, "no head to predict with"),
        ({"seeds": ()}, "There are no seeds"),
        ({"subsets": ["i+x"]}, "no subset 'i\\+x'"),
        ({"texts": MANY[:2]}, "cannot be learned from 2 different texts"),
        ({"texts": MANY[:1] * 9}, "cannot be learned from 1 different texts"),
        ({"texts": ["日", "本"]}, "No text has a token to predict"),
    ],
)
def test_what_cannot_be_done_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(prosect.ProsectError, match=message):
        mlm(random_lens("bert"), **options)


def test_two_models_are_two_calls() -> None:
    lenses = {"one": random_lens("bert"), "two": random_lens("gpt2")}
    with pytest.raises(prosect.ProsectError, match="takes one model, not 2"):
        mlm(lenses)
    assert mlm({"one": lenses["one"]}, heads=["default"]).about.models.keys() == {"one"}


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_the_model_is_left_as_it_was_found(family: str) -> None:
    lens = random_lens(family, torch.float32)
    lens.model.train()
    weights = {name: value.clone() for name, value in lens.model.state_dict().items()}
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in lens.model.modules()]
    mlm(lens, MANY[:8])
    assert all(module.training for module in lens.model.modules())
    assert all(torch.equal(weights[name], value) for name, value in lens.model.state_dict().items())
    assert [
        len(m._forward_hooks) + len(m._forward_pre_hooks) for m in lens.model.modules()
    ] == hooks
    assert all(parameter.grad is None for parameter in lens.model.parameters())


def test_a_large_vocabulary_is_predicted_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Extract(Masking(), ("default",), ("i", "f+c", "all"))
    whole = task.measure(random_lens("gpt2"), MANY[:8])["default"]
    monkeypatch.setattr(predict, "BLOCK", 7 * 400)
    np.testing.assert_array_equal(task.measure(random_lens("gpt2"), MANY[:8])["default"], whole)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_models_in_half_precision_predict_too(dtype: torch.dtype) -> None:
    assert mlm(random_lens("bert", dtype), MANY[:10]).by_seed.shape == (2, 15)

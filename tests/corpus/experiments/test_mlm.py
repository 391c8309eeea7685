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
from prosect import corpus
from prosect.analyses import predictions
from prosect.anatomy.vocabulary import TERMS
from prosect.corpus import Masking, Training
from prosect.corpus.data.masking import Masker, content_hash
from prosect.corpus.experiments.mlm import Targets, TargetTerms, split_texts
from prosect.corpus.experiments.subsets import label_of, subsets_of
from support.families import TEXTS, random_lens, random_model

HEADS = ["bert", "roberta", "electra-small", "albert", "distilbert", "deberta-v2", "modernbert"]
HEADS += ["bert-decoder", "gpt2", "llama", "gemma2", "opt-post-norm", "bloom"]
WORDS = "the river bank raised its rates behind a road where seven ducklings crossed on Thursday"
MANY = [
    f"{' '.join(WORDS.split()[number % 8 :][: 3 + number // 8])} {TEXTS[number % 3]}"
    for number in range(60)
]
"""All different."""
FIGURES = ["default", "default_error", "default_test", "default_test_error", "learned"]
FIGURES += ["learned_error", "default_agreement", "default_test_agreement", "learned_agreement"]
QUICK = Training(shape="linear", epochs=3, patience=2, batch=32)


def only(values: dict[str, Any]) -> Any:
    """Of the only model."""
    (value,) = values.values()
    return value


def mlm(lens: Any, texts: Any = MANY, **options: Any) -> corpus.MlmResult:
    settings: dict[str, Any] = {"seeds": (0, 1), "training": QUICK, "progress": False}
    return corpus.mlm(lens, texts, **{**settings, **options})


@cache
def fitted() -> prosect.Lens:
    """A random model whose head was fitted to name the tokens that it reads; leave it as it is.

    With 32 dimensions for more tokens it is often right and often wrong.
    """
    lens = random_lens("bert")
    head: Any = lens.model.cls.predictions
    traces = list(lens.traces(MANY))
    ids = torch.tensor([token.id for trace in traces for token in trace.tokens])
    with torch.no_grad():
        states = head.transform(torch.cat([trace.hidden[-1] for trace in traces]))
        wanted = torch.nn.functional.one_hot(ids, 400).double()
        weight = torch.linalg.lstsq(states, wanted).solution.T.contiguous()
        head.decoder.weight = torch.nn.Parameter(weight)  # no longer the word embeddings
        head.bias.zero_()
    return lens


@pytest.mark.parametrize("family", HEADS)
def test_the_default_head_predicts_what_one_prediction_after_the_other_gives(family: str) -> None:
    lens = random_lens(family)
    masking = Masking(share=0.3)
    labels = tuple(label_of(subset, TERMS) for subset in subsets_of(TERMS))
    found = TargetTerms(masking, ("default", "learned"), labels).measure(lens, MANY[:6])
    row = 0
    for text in MANY[:6]:
        chosen = Masker(lens, masking)(text)
        trace = lens.trace(text, replacements=chosen.replacements)
        for place, target in zip(chosen.positions, chosen.targets, strict=True):
            best = [trace.predict(subset, place, k=1)[0].id for subset in subsets_of(TERMS)]
            assert found["default"][row].tolist() == best
            assert found["ids"][row] == target
            assert found["texts"][row] == content_hash(text)
            terms = trace.terms().values[:, -1, place]
            np.testing.assert_allclose(found["terms"][row], terms, rtol=1e-5, atol=1e-5)
            row += 1
    assert row == len(found["ids"]) > 15
    assert bool(found["causal"]) == lens.anatomy.causal


@pytest.mark.parametrize("family", ["bert", "electra-small", "gpt2", "gemma2"])
def test_all_terms_predict_what_the_model_itself_predicts_of_what_it_reads(family: str) -> None:
    lens = fitted() if family == "bert" else random_lens(family)
    model: Any = lens.model
    masking = Masking(share=0.5)
    expected = []
    for text in MANY[:8]:
        chosen = Masker(lens, masking)(text)
        ids = [token.id for token in lens.tokens(text)]
        for place, id in chosen.replacements.items():
            ids[place] = id
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0, chosen.positions]
        expected += logits.argmax(-1).tolist()
    found = TargetTerms(masking, ("default",), ("all",)).measure(lens, MANY[:8])
    assert found["default"][:, 0].tolist() == expected
    assert len(set(expected)) > 1
    assert "terms" not in found


def test_accuracy_is_the_share_of_targets_that_are_predicted() -> None:
    lens, masking = fitted(), Masking(share=0.4, masked=0.0)
    found = mlm(lens, MANY, heads=["default"], masking=masking, batch=7)
    labels = tuple(only(found.subsets))
    arrays = TargetTerms(masking, ("default",), labels).measure(lens, MANY)
    right = arrays["default"] == arrays["ids"][:, None]
    assert 0 < right.mean() < 1
    np.testing.assert_allclose(only(found.default), right.mean(0), rtol=1e-12)
    assert found.about.tokens == {"targets": len(right)}
    assert only(found.most_frequent) == np.bincount(arrays["ids"]).max() / len(right)
    assert only(found.objective) == "masked token"
    assert only(mlm(random_lens("gpt2"), MANY[:3], heads=["default"]).objective) == "next token"


@pytest.mark.data
@pytest.mark.skipif(find_spec("rxnmapper") is None, reason="the weights are not installed")
def test_real_weights_restore_reactions_from_all_terms_and_fail_on_the_bias() -> None:
    chains = ["C", "CC", "CCC", "CC(C)", "CCCC", "C1CCCC1"]
    reactions = [f"O=C(O){a}.{b}O>>{b}OC(=O){a}" for a in chains for b in chains]
    frame = mlm("rxnmapper", reactions, heads=["default"]).to_frame().set_index("subset")
    right = frame["default"]
    assert right["all"] > 0.8
    assert right["all"] > frame["most_frequent_token"].iloc[0] + 0.3
    assert right["c"] < 0.1
    assert right["h"] > right["i"] + 0.2


def test_the_result_does_not_depend_on_how_the_work_is_cut(tmp_path: Path) -> None:
    lens = fitted()
    whole = mlm(lens, MANY[:20])
    for options in ({"batch": 1}, {"batch": 3, "shard": 3}, {"shard": 7, "checkpoint": tmp_path}):
        found = mlm(lens, MANY[:20], **options)
        assert found.most_frequent == whole.most_frequent
        for field in FIGURES:
            one, other = only(getattr(found, field)), only(getattr(whole, field))
            np.testing.assert_allclose(one, other, rtol=1e-12, err_msg=field)


def test_a_checkpoint_spares_the_model_a_second_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lens = random_lens("bert")
    first = mlm(lens, MANY[:20], checkpoint=tmp_path)
    learned = mlm(lens, MANY[:20], checkpoint=tmp_path, heads=["learned"], subsets=["h"])
    monkeypatch.setattr(prosect.Lens, "traces", None)  # nothing is traced again
    again = mlm(lens, MANY[:20], checkpoint=tmp_path)
    np.testing.assert_array_equal(only(again.learned), only(first.learned))
    other = mlm(lens, MANY[:20], checkpoint=tmp_path, seeds=(2, 3, 4))
    assert only(other.learned).shape == (3, 15)
    heads = {"heads": ["learned"], "subsets": ["h", "all"]}  # other subsets are no other pass
    more = mlm(lens, MANY[:20], checkpoint=tmp_path, split=1, **heads)
    assert only(more.learned).shape == (2, 2)
    same = mlm(lens, MANY[:20], checkpoint=tmp_path, **heads)
    np.testing.assert_allclose(only(same.learned)[:, :1], only(learned.learned))
    with pytest.raises(TypeError):  # another masking is another pass
        mlm(lens, MANY[:20], checkpoint=tmp_path, masking=Masking(seed=1))


def test_one_setting_of_the_training_leaves_the_others_alone() -> None:
    training = Training(epochs=2)
    found = mlm(random_lens("bert"), MANY[:20], training=training, subsets=["all"])
    assert found.about.settings["training"] == {
        **mlm(random_lens("bert"), MANY[:20], training=None, subsets=["all"]).about.settings[
            "training"
        ],
        "epochs": 2,
    }
    assert found.about.settings["training"]["shape"] == "linear"


# --- learned heads ------------------------------------------------------------------------------


def test_texts_are_parted_by_content_hash() -> None:
    texts = np.array([content_hash(text) for text in MANY for _ in range(3)], np.uint64)
    parts = split_texts(texts, 0)
    assert [len(part) for part in parts] == [48, 6, 6]
    assert set(np.concatenate(parts).tolist()) == set(texts.tolist())
    shuffled = np.random.default_rng(0).permutation(texts)
    for part, same in zip(parts, split_texts(shuffled, 0), strict=True):
        np.testing.assert_array_equal(part, same)
    assert content_hash(f" {MANY[0].replace(' ', '  ')} ") == content_hash(MANY[0])  # a copy
    assert set(split_texts(texts, 1)[2].tolist()) != set(parts[2].tolist())


def test_a_learned_head_finds_what_its_terms_say_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Features made up so that only h says the target: subsets with h are right, others guess."""
    random = np.random.default_rng(0)
    directions = 3 * random.normal(size=(7, 16))

    def told(self: Any, lens: Any, items: Any) -> dict[str, np.ndarray]:
        ids = np.array([content_hash(text) % 7 + 100 for text in items], np.int64)
        terms = random.normal(size=(len(items), 4, 16))
        terms[:, 1] = directions[ids - 100]
        return {
            "ids": ids,
            "texts": np.array([content_hash(text) for text in items], np.uint64),
            "terms": terms.astype(np.float32),
            "causal": np.array(False),
        }

    monkeypatch.setattr(TargetTerms, "measure", told)
    texts = [f"the river {number}" for number in range(600)]
    training = Training(shape="linear", epochs=20, batch=32, rate=0.01)
    found = mlm(random_lens("bert"), texts, heads=["learned"], training=training)
    right = found.to_frame().set_index("subset")["learned"]
    assert right["h"] > 0.97
    assert all(value > 0.9 for subset, value in right.items() if "h" in subset or subset == "all")
    others = [value for subset, value in right.items() if "h" not in subset and subset != "all"]
    assert len(others) == 7
    assert max(others) < 0.35
    assert found.about.tokens == {
        "targets": 600,
        "test targets": 60,
        "classes": 7,
        "test targets of no class": 0,
    }


def test_targets_that_training_texts_lack_count_as_errors() -> None:
    texts = [f"the river {chr(0x3B1 + number)}" for number in range(20)]  # a letter of its own each
    masking = Masking(share=1.0)
    found = mlm(random_lens("gpt2"), texts, heads=["learned"], masking=masking, subsets=["all"])
    counts = found.about.tokens
    assert counts["test targets of no class"] == 2
    most = 1 - counts["test targets of no class"] / counts["test targets"]
    assert only(found.learned).max() <= most
    assert 0 < only(found.most_frequent) <= most


def test_seeds_give_runs_of_their_own() -> None:
    found = mlm(random_lens("bert"), MANY, seeds=3, masking=Masking(share=0.4))
    runs, frame = only(found.learned), found.to_frame()
    assert (runs[0] != runs[1]).any()
    np.testing.assert_allclose(frame["learned"], runs.mean(0))
    np.testing.assert_allclose(frame["learned_spread"], runs.std(0, ddof=1))
    assert found.about.seeds == (0, 1, 2)
    alone = mlm(random_lens("bert"), MANY, seeds=(1,), masking=Masking(share=0.4), subsets=["f+i"])
    assert only(alone.subsets) == ["i+f"]
    assert alone.about.settings["subsets"] == ["f+i"]
    assert only(alone.learned)[0, 0] == pytest.approx(runs[1, only(found.subsets).index("i+f")])
    assert alone.to_frame()["learned_spread"].isna().all()


def test_a_model_without_a_head_learns_one_and_is_refused_its_own() -> None:
    lens = prosect.Lens(random_model("bert").base_model, random_lens("bert").tokenizer)
    with pytest.raises(
        prosect.UnsupportedModelError,
        match=r"^BertModel has no head .*, or use heads=\['learned'\]\.$",
    ):
        mlm(lens)
    found = mlm(lens, heads=["learned"])
    assert (found.default, found.default_test) == ({}, {})
    same = mlm(random_lens("bert"), heads=["learned"])
    np.testing.assert_array_equal(only(found.learned), only(same.learned))


def test_the_head_of_a_pair_is_refused_and_one_on_its_encoder_is_learned() -> None:
    lens = random_lens("bart")
    with pytest.raises(prosect.UnsupportedModelError, match="head of bart reads the states"):
        mlm(lens)
    assert only(mlm(lens, heads=["learned"]).learned).shape == (2, 15)


# --- figures ------------------------------------------------------------------------------------


def test_scores_are_those_of_a_plain_count() -> None:
    ids, texts = np.array([5, 5, 6, 7, 5]), np.array([1, 1, 2, 2, 3], np.uint64)
    targets = Targets(ids, texts, None, None, causal=False)
    predicted = np.array([[[5, 5, 6, 5, 5], [5, 6, 6, 5, 6]], [[5, 6, 6, 5, 5], [5, 6, 5, 5, 5]]])
    found = targets.evaluate(predicted)
    np.testing.assert_allclose(found.accuracy, [[0.8, 0.4], [0.6, 0.4]])
    sums = np.array([[1.5, 1.0], [1.0, 0.5], [1.0, 0.5]])  # by text, the mean of the runs
    counts = np.array([2, 2, 1])
    ratio = sums.sum(0) / 5
    left = np.square(sums - ratio * counts[:, None]).sum(0)
    np.testing.assert_allclose(found.error, np.sqrt(left * 3 / 2) / 5)
    # between the runs: first with first 4 of 5, second with second 3; first with second 4 and 3
    np.testing.assert_allclose(found.agreement, [[0.8, 0.7], [0.7, 0.6]])
    known = Targets(np.array([7, 7, 5]), texts[:3], None, None, causal=False)
    assert targets.share_of_most_frequent(known) == 0.2  # of 7, the most frequent of those known


def test_the_default_head_is_judged_on_the_learned_heads_targets_too() -> None:
    lens, masking = fitted(), Masking(share=1.0, masked=0.0)
    found = mlm(lens, MANY, masking=masking)
    right: list[bool] = []
    held = set(
        split_texts(np.array([content_hash(text) for text in MANY], np.uint64), 0)[2].tolist()
    )
    for text in (text for text in MANY if content_hash(text) in held):
        chosen = Masker(lens, masking)(text)
        trace = lens.trace(text, replacements=chosen.replacements)
        for place, target in zip(chosen.positions, chosen.targets, strict=True):
            right.append(trace.predict(position=place, k=1)[0].id == target)
    assert len(right) == found.about.tokens["test targets"]
    assert 0 < np.mean(right) < 1
    assert only(found.default_test)[-1] == pytest.approx(np.mean(right))


def test_figures_are_there_and_a_saved_result_reads_back(tmp_path: Path) -> None:
    found = mlm(fitted(), MANY[:20], masking=Masking(share=0.5))
    found.save(tmp_path / "mlm.json")
    again = corpus.load(tmp_path / "mlm.json")
    assert isinstance(again, corpus.MlmResult)
    assert again.about == found.about
    assert again.to_frame().equals(found.to_frame())
    for field in FIGURES:
        np.testing.assert_array_equal(only(getattr(again, field)), only(getattr(found, field)))
    frame = found.to_frame()
    assert list(frame.columns) == [
        *("model", "subset", "default", "default_error", "default_test", "default_test_error"),
        *("learned", "learned_spread", "learned_error", "most_frequent_token"),
    ]
    assert frame.loc[7, "subset"] == "h+f"
    assert frame.loc[7, "default"] == only(found.default)[7]
    assert (only(found.default) != only(found.default_test)).any()
    counts = found.about.tokens
    figure, agreement = found.figure(), found.figure_agreement()
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == only(found.subsets)
    for drawn in (figure, agreement):
        drawn.savefig(tmp_path / "figure.svg")
    assert figure.axes[0].get_title() == f"bert, {counts['test targets']} test targets"
    assert f"on {counts['test targets']} test targets" in agreement.axes[0].get_title()
    legend, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert whole.x0 <= legend.x0 < legend.x1 <= whole.x1
    dots = [mark for mark in found.plot().marks if type(mark).__name__ == "Scatter"]
    np.testing.assert_allclose(dots[0].y, only(found.default_test))
    np.testing.assert_allclose(dots[1].y, only(found.learned).mean(0))
    found.plot_agreement()
    table = found.agreement()
    assert table.loc["h", "f"] == only(found.default_test_agreement)[1, 2]
    assert table.loc["f", "h"] == only(found.learned_agreement)[1, 2]


def test_accuracies_stand_beside_the_papers() -> None:
    found = mlm(fitted(), MANY[:20])
    table = found.compare()
    own, learned = (f"bert-base-uncased (paper), {head} head" for head in ("default", "learned"))
    assert table.loc["f", (own, "mean")] == pytest.approx(0.0136)
    assert table.loc["f", (learned, "mean")] == pytest.approx(0.5377)
    assert list(table.index) == ["f"]  # the paper has no others
    assert list(table[[own, learned]].columns) == [(own, "mean"), (learned, "mean")]
    with pytest.raises(prosect.ProsectError, match="scores of the subsets f only"):
        mlm(fitted(), MANY[:20], heads=["default"], subsets=["h", "all"]).compare()
    np.testing.assert_allclose(table["bert, default head", "mean"], only(found.default_test)[2])
    np.testing.assert_allclose(table["bert, learned head", "mean"], only(found.learned).mean(0)[2])


def test_a_single_head_makes_a_table_and_figures_too() -> None:
    found = mlm(random_lens("bert"), MANY[:2], heads=["default"])
    columns = ["model", "subset", "default", "default_error", "most_frequent_token"]
    assert list(found.to_frame().columns) == columns
    assert (found.learned, found.about.seeds) == ({}, ())
    assert found.agreement().equals(found.agreement().T)
    for draw in (found.figure, found.plot, found.figure_agreement, found.plot_agreement):
        draw()
    found.compare()


def test_several_models_are_judged_on_the_same_targets() -> None:
    lenses = {"one": fitted(), "other": random_lens("bert", seed=1)}
    found = mlm(lenses)
    assert list(found.subsets) == ["one", "other"]
    counts = found.about.tokens
    for what in ("targets", "test targets", "classes"):
        assert counts[f"{what} of one"] == counts[f"{what} of other"]
    alone = mlm(lenses["other"])
    np.testing.assert_array_equal(found.learned["other"], only(alone.learned))
    np.testing.assert_array_equal(found.default_test["other"], only(alone.default_test))
    assert len(found.to_frame()) == 30
    figure = found.figure()
    assert len(figure.axes) == 2
    levels = [line for axes in figure.axes for line in axes.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in levels] == list(found.most_frequent.values())
    assert found.agreement("other").equals(alone.agreement())


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": ["own"]}, "one or both of default, learned, got \\['own'\\]"),
        ({"heads": []}, "one or both of default, learned, got"),
        ({"seeds": ()}, "at least 1 or a list"),
        ({"split": "abc"}, "split must be an integer, got 'abc'"),
        ({"masking": {"share": 0.2}}, "masking must be a prosect.corpus.Masking.* got dict"),
        ({"training": {"epochs": 3}}, "training must be a prosect.corpus.Training.* got dict"),
        ({"subsets": ["i+x"]}, "joined by \\+, got 'i\\+x'"),
        ({"texts": MANY[:2]}, "got 0, . and ."),
        ({"texts": MANY[:1] * 9}, "got 0, 0 and"),
        ({"texts": ["日", "本"]}, "No text has a token to predict"),
    ],
)
def test_what_cannot_be_done_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(prosect.ProsectError, match=message):
        mlm(random_lens("bert"), **options)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_the_model_is_left_as_it_was_found(family: str) -> None:
    lens = random_lens(family, torch.float32)
    lens.model.train()
    weights = {name: value.clone() for name, value in lens.model.state_dict().items()}
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in lens.model.modules()]
    mlm(lens, MANY[:20], masking=Masking(share=0.5))
    assert all(module.training for module in lens.model.modules())
    assert all(torch.equal(weights[name], value) for name, value in lens.model.state_dict().items())
    assert [
        len(m._forward_hooks) + len(m._forward_pre_hooks) for m in lens.model.modules()
    ] == hooks
    assert all(parameter.grad is None for parameter in lens.model.parameters())


def test_a_large_vocabulary_is_predicted_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    task = TargetTerms(Masking(), ("default",), ("i", "f+c", "all"))
    whole = task.measure(random_lens("gpt2"), MANY[:8])["default"]
    monkeypatch.setattr(predictions, "BLOCK", 7 * 400)
    np.testing.assert_array_equal(task.measure(random_lens("gpt2"), MANY[:8])["default"], whole)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_models_in_half_precision_predict_too(dtype: torch.dtype) -> None:
    assert only(mlm(random_lens("bert", dtype), MANY[:20]).learned).shape == (2, 15)

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch
from torch import nn

import prosect
from prosect.anatomy.vocabulary import TERMS
from prosect.corpus.experiments.subsets import indicator, label_of, subsets_of
from prosect.corpus.statistics import classifier
from prosect.corpus.statistics.classifier import (
    Examples,
    Heads,
    ResolvedTraining,
    Training,
    predictions,
    train,
)

SUBSETS = subsets_of(TERMS)
MIX = indicator(SUBSETS, TERMS)
SIZE, CLASSES = 6, 7


def examples(count: int, seed: int = 0, *, choices: bool = False) -> Examples:
    """Random terms, labels and, where wanted, choices that differ in number."""
    generator = torch.Generator().manual_seed(seed)
    terms = torch.randn(4, count, SIZE, generator=generator, dtype=torch.float64)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    if not choices:
        return Examples(terms, labels)
    allowed = torch.full((count, 4), -1)
    for i, label in enumerate(labels.tolist()):
        others = [c for c in torch.randperm(CLASSES, generator=generator).tolist() if c != label]
        own = sorted([label, *others[: i % 4]])
        allowed[i, : len(own)] = torch.tensor(own)
    return Examples(terms, labels, allowed)


def only(terms: Examples, subset: int) -> torch.Tensor:
    """The sum of the terms of one subset."""
    return terms.terms[[TERMS.index(term) for term in SUBSETS[subset]]].sum(0)


def of_model(heads: Heads, number: int) -> list[torch.Tensor]:
    return [weight[number] for weight in heads.weights]


# --- what is trained --------------------------------------------------------------------------


def module(start: list[torch.Tensor], shape: str, dropout: float = 0.0) -> nn.Module:
    """The same head made of torch's own layers."""
    if shape == "linear":
        layer = nn.Linear(SIZE, CLASSES)
        weights, layers = [(layer, start[0], start[1][0])], [layer]
    else:
        first, last = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, CLASSES, bias=False)
        weights = [(first, start[0].T, start[1][0]), (last, start[2], None)]
        layers = [first, nn.ReLU(), nn.Dropout(dropout), last]
    for layer, weight, bias in weights:
        layer.weight.data = weight.double().clone()
        if bias is not None:
            layer.bias.data = bias.double().clone()
    return nn.Sequential(*layers)


@pytest.mark.parametrize("shape", ["mlp", "linear"])
@pytest.mark.parametrize("choices", [False, True])
def test_training_is_that_of_torchs_own_layers(shape: Any, choices: bool) -> None:
    how = Training(shape=shape, epochs=4, dropout=0.0, batch=16, rate=0.01, best="loss")
    learned, valid = examples(50, choices=choices), examples(20, 1, choices=choices)
    heads = train(learned, valid, MIX, CLASSES, seed=3, training=how)
    for subset in (0, 6, 14):
        generator = torch.Generator().manual_seed(3)
        g = module(classifier._initial_weights(SIZE, CLASSES, shape, generator), shape)
        optimizer = torch.optim.AdamW(g.parameters(), lr=0.01, weight_decay=0.01)

        def lost(g: nn.Module, of: Examples, subset: int = subset) -> torch.Tensor:
            scores = g(only(of, subset))
            if of.allowed is not None:
                closed = torch.ones_like(scores, dtype=torch.bool)
                for row, own in zip(closed, of.allowed, strict=True):
                    row[own[own >= 0]] = False
                scores = scores.masked_fill(closed, -torch.inf)
            return nn.functional.cross_entropy(scores, of.labels)

        best, least = None, torch.inf
        for _ in range(4):
            for chosen in torch.randperm(50, generator=generator).split(16):
                optimizer.zero_grad()
                lost(g, learned[chosen]).backward()
                optimizer.step()
            now = lost(g, valid).item()
            if now < least:
                best, least = copy.deepcopy(g), now
        assert best is not None
        found = of_model(heads, subset)
        expected = list(best.parameters())
        if shape == "mlp":
            found[0] = found[0].T
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours.reshape(theirs.shape), theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", ["mlp", "linear"])
@pytest.mark.parametrize("choices", [False, True])
@pytest.mark.parametrize("standardise", [False, True])
def test_a_head_trained_alone_is_the_same_as_with_others(
    shape: Any, choices: bool, standardise: bool
) -> None:
    how = Training(shape=shape, epochs=12, patience=2, batch=8, rate=0.02, standardise=standardise)
    learned, valid = examples(40, choices=choices), examples(20, 1, choices=choices)
    together = train(learned, valid, MIX, CLASSES, seed=5, training=how)
    assert len(together.epochs.unique()) > 1  # they stop at different times
    for subset in range(len(MIX)):
        alone = train(learned, valid, MIX[subset : subset + 1], CLASSES, seed=5, training=how)
        assert alone.epochs[0] == together.epochs[subset]
        for ours, theirs in zip(of_model(alone, 0), of_model(together, subset), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_heads_that_do_not_fit_in_memory_train_in_turn(monkeypatch: Any) -> None:
    learned, valid, how = examples(40), examples(20, 1), Training(epochs=3, standardise=True)
    together = train(learned, valid, MIX, CLASSES, training=how)
    monkeypatch.setattr(classifier, "MAX_TRAINING_BYTES", 1)
    monkeypatch.setattr(classifier, "MAX_BLOCK_BYTES", 1)
    in_turn = train(learned, valid, MIX, CLASSES, training=how)
    for ours, theirs in zip(in_turn.weights, together.weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    assert in_turn.epochs.equal(together.epochs)
    assert in_turn.predict(valid).equal(together.predict(valid))


def test_the_weights_of_the_best_epoch_are_kept(monkeypatch: Any) -> None:
    epochs: list[tuple[float, list[torch.Tensor]]] = []
    quality = Heads.quality

    def watched(self: Heads, *arguments: Any) -> torch.Tensor:
        found = quality(self, *arguments)
        epochs.append((float(found[0]), [weight.detach().clone() for weight in self.weights]))
        return found

    monkeypatch.setattr(Heads, "quality", watched)
    how = Training(epochs=30, patience=30, rate=0.02, batch=8)
    kept = train(examples(40), examples(30, 1), MIX[-1:], CLASSES, training=how)
    assert len(epochs) == 30
    values = [value for value, _ in epochs]
    best = values.index(max(values))
    assert 0 < best < 29
    assert kept.epochs.tolist() == [best + 1]
    for ours, theirs in zip(kept.weights, epochs[best][1], strict=True):
        assert ours.equal(theirs)


def test_patience_counts_epochs_after_the_best(monkeypatch: Any) -> None:
    qualities = iter([0.3, 0.5, 0.5, 0.4, 0.45, 0.9])
    seen = []

    def quality(self: Heads, *_: object) -> torch.Tensor:
        seen.append(next(qualities))
        return torch.tensor([seen[-1]])

    monkeypatch.setattr(Heads, "quality", quality)
    heads = train(examples(20), examples(5, 1), MIX[:1], CLASSES, training=Training(patience=3))
    assert seen == [0.3, 0.5, 0.5, 0.4, 0.45]
    assert heads.epochs.tolist() == [2]


def test_a_seed_gives_the_same_and_another_seed_something_else() -> None:
    learned, valid, test = examples(60), examples(20, 1), examples(200, 2)
    how = Training(epochs=3, dropout=0.5)
    first, again, other = (
        predictions(learned, valid, test, MIX, CLASSES, seeds=seeds, training=how)
        for seeds in ([1, 2], [2, 1], [3])
    )
    assert first.shape == (2, len(MIX), 200)
    np.testing.assert_array_equal(first, again[::-1])
    assert (first[0] != other[0]).any(-1).all()


def test_the_state_of_torchs_random_numbers_is_left_alone() -> None:
    before = torch.get_rng_state()
    train(examples(20), examples(5, 1), MIX[:2], CLASSES, training=Training(epochs=1))
    assert torch.get_rng_state().equal(before)


# --- what is learned --------------------------------------------------------------------------


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("shape", ["mlp", "linear"])
def test_what_one_term_alone_tells_is_learned_by_the_subsets_that_have_it(
    term: Any, shape: Any
) -> None:
    def telling(count: int, seed: int) -> Examples:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(3, (count,), generator=generator)
        terms = 0.5 * torch.randn(4, count, 24, generator=generator)
        terms[TERMS.index(term)] += 4 * torch.eye(24)[labels]
        return Examples(terms, labels)

    how = Training(shape=shape, epochs=30, rate=0.01, batch=32)
    test = telling(300, 2)
    found = predictions(telling(300, 0), telling(60, 1), test, MIX, 3, seeds=[0], training=how)
    right = (found[0] == test.labels.numpy()).mean(-1)
    for subset, share in zip(SUBSETS, right, strict=True):
        if term in subset:
            assert share > 0.95, label_of(subset, TERMS)
        else:
            assert share < 0.45, label_of(subset, TERMS)  # chance is a third


@pytest.mark.parametrize("shape", ["mlp", "linear"])
def test_only_what_is_allowed_is_ever_said(shape: Any) -> None:
    learned, valid, test = (examples(n, n, choices=True) for n in (50, 20, 300))
    assert test.allowed is not None
    how = Training(shape=shape, epochs=2, rate=0.05)
    heads = train(learned, valid, MIX, CLASSES, training=how)
    probabilities = heads.logits(test).softmax(-1)
    shut = (test.allowed < 0).expand_as(probabilities)
    assert probabilities[shut].eq(0).all()
    found = heads.predict(test)
    assert (found[..., None] == test.allowed).any(-1).all()
    # of those allowed, the one that scores most without any restriction
    free = heads.logits(Examples(test.terms, test.labels))
    open_ = torch.zeros(len(test), CLASSES, dtype=torch.bool)
    for row, own in zip(open_, test.allowed, strict=True):
        row[own[own >= 0]] = True
    assert found.equal(free.masked_fill(~open_, -torch.inf).argmax(-1))


def test_standardising_gives_mean_zero_and_variance_one_to_every_sum() -> None:
    learned = examples(50)
    learned.terms[..., 2] = 7.0  # the same everywhere
    heads = train(
        learned, examples(9, 1), MIX, CLASSES, training=Training(standardise=True, epochs=1)
    )
    inputs = heads.inputs(learned.terms)
    torch.testing.assert_close(inputs.mean(1), torch.zeros(15, SIZE).double(), atol=1e-12, rtol=0)
    spread = inputs.std(1, correction=0)
    expected = torch.ones(15, SIZE).double()
    expected[:, 2] = 0
    torch.testing.assert_close(spread, expected)


@pytest.mark.parametrize("by", ["accuracy", "macro_f1", "loss"])
def test_quality_is_that_of_scikit_learn(by: Any) -> None:
    heads = train(
        examples(40), examples(9, 1), MIX, CLASSES, training=Training(epochs=2, rate=0.05)
    )
    judged = examples(30, 4)
    judged = judged[judged.labels != 3]  # a class that does not occur, but may be said
    found, gold = heads.predict(judged), judged.labels
    for subset, quality in enumerate(heads.quality(judged, by).tolist()):
        probabilities = heads.logits(judged)[subset].detach().softmax(-1)
        kept = sorted(set(gold.tolist()))
        expected = {
            "accuracy": lambda said: sklearn.metrics.accuracy_score(gold, said),
            "macro_f1": lambda said, kept=kept: sklearn.metrics.f1_score(
                gold, said, labels=kept, average="macro", zero_division=0
            ),
            "loss": lambda _, p=probabilities: (
                -sklearn.metrics.log_loss(gold, p, labels=list(range(CLASSES)))
            ),
        }[by](found[subset])
        assert quality == pytest.approx(expected, abs=1e-6)


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": "deep"}, "shape must be one of mlp, linear, got 'deep'"),
        ({"best": "f2"}, "best must be one of accuracy, macro_f1, loss, got 'f2'"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"rate": 0.0}, "rate must be a number above 0, got 0.0"),
        ({"rate": float("nan")}, "rate must be a number above 0, got nan"),
        ({"decay": -1.0}, "decay must be a number of at least 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and less than 1"),
        ({"epochs": "3"}, "epochs must be an integer, got '3'"),
        ({"batch": True}, "batch must be an integer, got True"),
        ({"rate": "fast"}, "rate must be a number above 0, got 'fast'"),
        ({"standardise": "no"}, "standardise must be True or False, got 'no'"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(prosect.ProsectError, match=message):
        Training(**settings)


def test_options_that_are_none_take_the_experiments_defaults() -> None:
    own = ResolvedTraining(shape="linear", epochs=20, batch=64, rate=0.1)
    assert ResolvedTraining.of(None, own) == own
    assert ResolvedTraining.of(Training(), own) == own
    changed = ResolvedTraining.of(Training(epochs=5, dropout=0.0, standardise=False), own)
    assert changed == ResolvedTraining(shape="linear", epochs=5, batch=64, rate=0.1, dropout=0.0)
    assert ResolvedTraining.of(Training(epochs=5)) == ResolvedTraining(epochs=5)
    with pytest.raises(prosect.ProsectError, match=r"training must be a .*Training.* got dict"):
        ResolvedTraining.of({"epochs": 3})


def test_examples_that_cannot_be_learned_from_are_refused() -> None:
    some, none = examples(9), examples(9)[:0]
    for learned, valid, test in ((none, some, some), (some, none, some), (some, some, none)):
        with pytest.raises(prosect.ProsectError, match="at least one"):
            predictions(learned, valid, test, MIX, CLASSES, training=Training(epochs=1))
    shut = Examples(some.terms, some.labels, (some.labels[:, None] + 1) % CLASSES)
    with pytest.raises(prosect.ProsectError, match="not among its allowed classes"):
        train(shut, some, MIX, CLASSES)


def test_a_loss_that_is_not_finite_is_refused() -> None:
    wild = examples(40)
    wild.terms[0, 0] = torch.nan
    with pytest.raises(
        prosect.ProsectError, match="Loss is not finite in epoch 1: use a rate below"
    ):
        train(wild, examples(9, 1), MIX, CLASSES)

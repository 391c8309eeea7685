"""Word senses from subsets of the terms (Mickus et al. 2022, section 6)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from typing_extensions import Unpack

from prosect.anatomy.vocabulary import TERMS
from prosect.corpus.data.readers import SenseSentence, spans_of, text_of
from prosect.corpus.data.words import Place, Wanted, alike, listed, wording
from prosect.corpus.experiments import paper
from prosect.corpus.experiments.by_subset import BySubset, beside_the_paper, spread, triangles
from prosect.corpus.experiments.result import About
from prosect.corpus.experiments.subsets import chosen_subsets, indicator, label_of
from prosect.corpus.experiments.word_terms import words_of
from prosect.corpus.running.runner import Options
from prosect.corpus.running.workers import Models
from prosect.corpus.statistics.classifier import Examples, Settled, Training, predictions
from prosect.corpus.statistics.neighbours import NONE, Metric, nearest
from prosect.corpus.statistics.scores import agreement, micro_f1, numbered, standard_error
from prosect.errors import ProsectError
from prosect.figures.by_subset import Level, Points
from prosect.optional import needs
from prosect.validation import check_count, check_known, whole_number

if TYPE_CHECKING:
    import pandas as pd

FOLDS = 10
"""Of so many parts, one is tested, one is for validation, and the others are learned from."""


@dataclass(frozen=True, eq=False, repr=False)
class WsdResult(BySubset):
    """How well senses are told from the sum of some terms, as accuracies.

    Attributes
    ----------
    knn
        By model, [subset], of the nearest neighbours.
    knn_error
        By model, [subset], the standard error, with sentences as the independent draws.
    classifier
        By model, [seed, subset], of the classifiers.
    classifier_error
        By model, [subset], the standard error of the mean over seeds, with sentences as the
        independent draws.
    most_frequent
        Of the most frequent sense of each lemma in the training examples.
    most_frequent_error
        Its standard error.
    knn_agreement, classifier_agreement
        By model, [subset, subset], micro-F1 of the predictions from one against those from another;
        of classifiers, the mean over pairs of seeds (:func:`~prosect.corpus.statistics.scores.agreement`).
    """

    knn: dict[str, np.ndarray]
    knn_error: dict[str, np.ndarray]
    classifier: dict[str, np.ndarray]
    classifier_error: dict[str, np.ndarray]
    most_frequent: float
    most_frequent_error: float
    knn_agreement: dict[str, np.ndarray]
    classifier_agreement: dict[str, np.ndarray]

    _axis: ClassVar[str] = "accuracy"

    def to_frame(self) -> pd.DataFrame:
        """A row for each model and subset, with the baseline beside each.

        ``classifier`` is the mean over seeds, ``classifier_spread`` the standard deviation (NaN for
        a single seed); the errors are standard errors.
        """
        pandas = needs("pandas")
        frames = [
            pandas.DataFrame(
                {
                    "model": model,
                    "subset": labels,
                    "knn": self.knn[model],
                    "knn_error": self.knn_error[model],
                    "classifier": self.classifier[model].mean(0),
                    "classifier_spread": spread(self.classifier[model]),
                    "classifier_error": self.classifier_error[model],
                    "most_frequent_sense": self.most_frequent,
                }
            )
            for model, labels in self.subsets.items()
        ]
        return pandas.concat(frames, ignore_index=True)

    def agreement(self, model: str | None = None) -> pd.DataFrame:
        """Of one model: nearest neighbours in the upper triangle, classifiers in the lower.

        On the diagonal is how well classifiers of one subset agree that differ in their seed.
        """
        name = self._named(model)
        return triangles(
            self.knn_agreement[name], self.classifier_agreement[name], self.subsets[name]
        )

    def compare(self) -> pd.DataFrame:
        """The classifiers' accuracies beside the paper's (bert-base-uncased, all of SemCor)."""
        return beside_the_paper(
            self.subsets, self.classifier, {f"{paper.MODEL} (paper)": paper.WSD_CLASSIFIER}
        )

    def _points(self, model: str) -> list[Points]:
        labels, runs = self.subsets[model], self.classifier[model]
        return [
            Points(
                "nearest neighbours, ± standard error",
                labels,
                self.knn[model],
                self.knn_error[model],
            ),
            Points("classifier, ± spread over seeds", labels, runs.mean(0), spread(runs)),
        ]

    def _levels(self, model: str) -> list[Level]:
        return [Level("most frequent sense", self.most_frequent, self.most_frequent_error)]

    def _sides(self, model: str | None) -> str:
        return f"{self._named(model)}: agreement, neighbours above, classifiers below"


def wsd(
    lens: Models,
    sentences: Iterable[SenseSentence],
    *,
    state: int = -1,
    subsets: Sequence[str] | None = None,
    k: int = 5,
    metric: Metric = "cosine",
    seeds: int | Sequence[int] = 5,
    split: int = 0,
    folds: int = 1,
    training: Training | None = None,
    **options: Unpack[Options],
) -> WsdResult:
    """How well word senses are told from every subset of the terms.

    An instance is a word with a sense whose lemma has several senses in the sentences given; its
    vector is the sum over its tokens. Instances are split 80/10/10 into training, validation and
    test: as in the paper one by one, so that those of one sentence may be in different parts; but
    an instance and its copies, the same word of a sentence with the same words, are in one.

    Two methods choose among the senses of the lemma: the k nearest neighbours among the training
    instances of the lemma, and a classifier whose first layer all lemmas share
    (:class:`~prosect.corpus.Training`). The baseline is the most frequent sense in
    training.

    Where a lemma has no training instance, neighbours and baseline say the sense that is first in
    the alphabet, and what the classifier says is as arbitrary; ``about.tokens`` counts them.

    Parameters
    ----------
    lens
        A model or several: lenses, or names for ``prosect.load``. Several are judged on the
        instances that all of them have read.
    sentences
        As :mod:`prosect.corpus.readers` reads them.
    state
        Of which hidden state the terms are; the last by default.
    subsets
        The labels of some subsets, such as ["h", "i+f", "all"]; all by default.
    k, metric
        Of the neighbours: how many, and "cosine" or "l2".
    seeds
        Of the classifiers, or how many.
    split
        The seed of the split.
    folds
        How many of the ten possible test sets, each a tenth of the instances, are used; the
        accuracies are over all of them. 10 tests on every instance once.
    training
        How classifiers are trained, where not as the paper does it.
    **options
        How to run it: see :class:`~prosect.corpus.Options`.

    Raises
    ------
    TypeError
        If a sentence is none that a reader made.
    ProsectError
        If an argument is out of range, there are fewer than ten different instances, or no text
        fits a model.
    """
    check_known(metric, get_args(Metric), "metric")
    k, folds = whole_number(k, "number of neighbours"), whole_number(folds, "number of folds")
    state, split = whole_number(state, "state"), whole_number(split, "split")
    check_count(k, "k counts neighbours")
    if not 1 <= folds <= FOLDS:
        raise ProsectError(f"folds are from 1 to {FOLDS} of the test sets, not {folds}.")
    chosen_subsets(subsets, (*TERMS, "source"))  # a wrong label is told before the work begins
    numbers, how = numbered(seeds), Settled.of(training)
    given = listed(sentences, SenseSentence)
    senses = senses_of(given)
    words = words_of(lens, _wanted(given, senses), state, **options)
    started = time.perf_counter()
    instances = Instances.of(given, words.places, senses)
    if (different := len(np.unique(instances.copies))) < FOLDS:
        raise ProsectError(
            f"{different} different instances of lemmas with several senses: "
            f"give more sentences, for at least {FOLDS} of them."
        )
    parts = instances.folds(split, folds)
    tested = np.concatenate([test for _, _, test in parts])
    gold = instances.labels[tested]
    texts = [words.places[i][0] for i in tested]
    usual = np.concatenate([instances.most_frequent(train, test) for train, _, test in parts])
    labels, close, learned = {}, {}, {}
    for model, terms in words.terms.items():
        names = words.names[model]
        chosen = chosen_subsets(subsets, names)
        labels[model] = [label_of(subset, names) for subset in chosen]
        close[model], learned[model] = instances.judged(
            instances.examples(terms, how.device),
            parts,
            indicator(chosen, names),
            partial(nearest, k=k, metric=metric),
            partial(predictions, seeds=numbers, how=how, progress=options.get("progress", True)),
        )
    counts = {
        "instances": len(instances.labels),
        "test instances": len(tested),
        "test instances of lemmas unseen in training": sum(
            instances.unseen(train, test) for train, _, test in parts
        ),
        "lemmas": len(set(instances.lemmas)),
        "senses": len(instances.senses),
        "words without a token": words.missing,
    }
    asked = {
        "state": state,
        "subsets": None if subsets is None else list(subsets),
        "k": k,
        "metric": metric,
        "split": split,
        "folds": folds,
        "training": asdict(how),
    }
    about = About.of(words.outcomes, counts, asked, numbers)
    right = {model: found == gold for model, found in learned.items()}
    near = {model: found == gold for model, found in close.items()}
    return WsdResult(
        replace(about, seconds=about.seconds + time.perf_counter() - started),
        labels,
        knn={model: hits.mean(-1) for model, hits in near.items()},
        knn_error={model: standard_error(hits, texts) for model, hits in near.items()},
        classifier={model: hits.mean(-1) for model, hits in right.items()},
        classifier_error={
            model: standard_error(hits.mean(0), texts) for model, hits in right.items()
        },
        most_frequent=float((usual == gold).mean()),
        most_frequent_error=float(standard_error((usual == gold)[None], texts)[0]),
        knn_agreement={model: agreement(found[None], micro_f1) for model, found in close.items()},
        classifier_agreement={
            model: agreement(found, micro_f1) for model, found in learned.items()
        },
    )


Fold = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The numbers of the instances for training, validation and test."""
Sense = tuple[str, str]
"""A lemma and one of its senses, so that senses of different lemmas may have one name."""


def senses_of(sentences: Sequence[SenseSentence]) -> dict[str, list[Sense]]:
    """The senses of every lemma that has several in the sentences, in alphabetical order.

    Raises
    ------
    ProsectError
        If no lemma has.
    """
    known: dict[str, set[Sense]] = {}
    for sentence in sentences:
        for lemma, sense in zip(sentence.lemmas, sentence.senses, strict=True):
            if lemma is not None and sense is not None:
                known.setdefault(lemma, set()).add((lemma, sense))
    several = {lemma: sorted(senses) for lemma, senses in known.items() if len(senses) > 1}
    if not several:
        raise ProsectError("No lemma has several senses in these sentences: give more of them.")
    return several


def _wanted(
    sentences: Sequence[SenseSentence], senses: Mapping[str, Sequence[Sense]]
) -> list[Wanted]:
    """The words with a sense whose lemma has several."""
    items = []
    for number, sentence in enumerate(sentences):
        pairs = enumerate(zip(sentence.lemmas, sentence.senses, strict=True))
        words = tuple(i for i, (lemma, sense) in pairs if sense is not None and lemma in senses)
        if words:
            spans = spans_of(sentence)
            items.append(Wanted(number, text_of(sentence), words, tuple(spans[i] for i in words)))
    return items


@dataclass(frozen=True, eq=False)
class Instances:
    """Words with a sense.

    Attributes
    ----------
    lemmas
        Of each.
    labels
        [instance], the number of its sense.
    allowed
        [instance, choice], the numbers of its lemma's senses in alphabetical order, padded with −1.
    senses
        All of them.
    copies
        [instance], a number that the same word has in all sentences with the same words.
    """

    lemmas: list[str]
    labels: Int[np.ndarray, "instance"]
    allowed: Int[np.ndarray, "instance choice"]
    senses: list[Sense]
    copies: Int[np.ndarray, "instance"]

    @classmethod
    def of(
        cls,
        sentences: Sequence[SenseSentence],
        places: Sequence[Place],
        own: Mapping[str, Sequence[Sense]],
    ) -> Instances:
        """Of the words at these places, with the senses of each lemma."""
        lemmas = [str(sentences[s].lemmas[w]) for s, w in places]
        senses = sorted({sense for lemma in lemmas for sense in own[lemma]})
        number = {sense: i for i, sense in enumerate(senses)}
        allowed = np.full((len(places), max((len(own[lemma]) for lemma in lemmas), default=1)), -1)
        for row, lemma in zip(allowed, lemmas, strict=True):
            row[: len(own[lemma])] = [number[sense] for sense in own[lemma]]
        named = [
            (lemma, str(sentences[s].senses[w]))
            for lemma, (s, w) in zip(lemmas, places, strict=True)
        ]
        copies = alike((wording(sentences[s]), w) for s, w in places)
        labels = np.array([number[sense] for sense in named], int)
        return cls(lemmas, labels, allowed, senses, copies)

    def folds(self, seed: int, count: int) -> list[Fold]:
        """So many splits into training, validation and test; no two test sets share an instance.

        Nor do training, validation and test share copies of one.
        """
        generator = torch.Generator().manual_seed(seed)
        by_copies = np.argsort(self.copies, kind="stable")
        groups = np.split(by_copies, np.cumsum(np.bincount(self.copies))[:-1])
        order = torch.randperm(len(groups), generator=generator).tolist()
        tenths = [
            np.concatenate([groups[i] for i in part]) for part in np.array_split(order, FOLDS)
        ]
        turned = [tenths[fold:] + tenths[:fold] for fold in range(count)]
        return [(np.concatenate(rest), valid, test) for test, valid, *rest in turned]

    def examples(self, terms: Float[torch.Tensor, "term instance d"], device: str) -> Examples:
        """What heads learn from."""
        labels, allowed = torch.from_numpy(self.labels), torch.from_numpy(self.allowed)
        return Examples(terms.to(device), labels.to(device), allowed.to(device))

    def judged(
        self,
        examples: Examples,
        folds: Sequence[Fold],
        mix: Float[torch.Tensor, "subset term"],
        near: Callable[..., np.ndarray],
        heads: Callable[..., np.ndarray],
    ) -> tuple[Int[np.ndarray, "subset test"], Int[np.ndarray, "seed subset test"]]:
        """What neighbours and classifiers say of the test instances of all folds.

        Neighbours are those of the same lemma; they say its first sense where it is new.
        """
        close, learned = [], []
        for fold in folds:
            train, valid, test = (examples[part] for part in fold)
            own, _, asked = ([self.lemmas[i] for i in part] for part in fold)
            found = near(train, own, test, asked, mix)
            close.append(np.where(found == NONE, self.allowed[fold[2], 0], found))
            learned.append(heads(train, valid, test, mix, len(self.senses)))
        return np.concatenate(close, -1), np.concatenate(learned, -1)

    def most_frequent(self, train: np.ndarray, test: np.ndarray) -> Int[np.ndarray, "test"]:
        """The commonest sense of the lemma in training; of equals, the first in the alphabet."""
        counts = np.bincount(self.labels[train], minlength=len(self.senses))
        own = np.where(self.allowed[test] >= 0, counts[self.allowed[test]], -1)
        return self.allowed[test, own.argmax(-1)]

    def unseen(self, train: np.ndarray, test: np.ndarray) -> int:
        """How many test instances have a lemma that is not in training."""
        known = {self.lemmas[i] for i in train}
        return sum(self.lemmas[i] not in known for i in test)

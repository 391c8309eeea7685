"""Word senses from subsets of the terms (Mickus et al. 2022, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from typing_extensions import Unpack

from prosect.anatomy.vocabulary import TERMS
from prosect.corpus.data.readers import SenseSentence, spans_of, text_of
from prosect.corpus.data.words import (
    WordPosition,
    WordRequest,
    checked_sentences,
    group_ids,
    normalized_text,
)
from prosect.corpus.experiments import paper
from prosect.corpus.experiments.by_subset import BySubset, beside_the_paper, spread, triangles
from prosect.corpus.experiments.result import About
from prosect.corpus.experiments.subsets import chosen_subsets, indicator, label_of
from prosect.corpus.experiments.word_terms import word_vectors
from prosect.corpus.running.runner import Options
from prosect.corpus.running.timing import Stopwatch
from prosect.corpus.running.workers import Models
from prosect.corpus.statistics.classifier import (
    Examples,
    ResolvedTraining,
    Training,
    predictions,
)
from prosect.corpus.statistics.neighbours import NO_CLASS, NeighbourMetric, knn_classes
from prosect.corpus.statistics.scores import agreement, micro_f1, seed_numbers, standard_error
from prosect.errors import ProsectError
from prosect.figures.by_subset import Level, Points
from prosect.modes import plain_arithmetic
from prosect.optional import needs
from prosect.validation import check_count, check_known, whole_number

if TYPE_CHECKING:
    import pandas as pd

FOLDS = 10
"""The number of parts: one is the test set, one the validation set, the others the training set."""


@dataclass(frozen=True, eq=False, repr=False)
class WsdResult(BySubset):
    """The accuracy of word senses predicted from the sum of the terms of each subset.

    Attributes
    ----------
    knn
        By model, [subset], the accuracy of the nearest neighbours.
    knn_error
        By model, [subset], its standard error, with sentences as independent draws.
    classifier
        By model, [seed, subset], the accuracy of the classifiers.
    classifier_error
        By model, [subset], the standard error of the mean over seeds, with sentences as independent
        draws.
    most_frequent
        The accuracy of the most frequent sense of each lemma in the training examples.
    most_frequent_error
        Its standard error.
    knn_agreement, classifier_agreement
        By model, [subset, subset], micro-F1 between the predictions from two subsets; for
        classifiers, the mean over pairs of seeds
        (:func:`~prosect.corpus.statistics.scores.agreement`).
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
        """Return one row per model and subset, with the baseline in the last column.

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
        """Return the agreement of one model's neighbours (upper triangle) and classifiers (lower).

        The diagonal holds the agreement between classifiers of one subset with different seeds.
        """
        name = self._model_name(model)
        return triangles(
            self.knn_agreement[name], self.classifier_agreement[name], self.subsets[name]
        )

    def compare(self) -> pd.DataFrame:
        """Return classifier accuracies beside the paper's (bert-base-uncased, all of SemCor)."""
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

    def _agreement_title(self, model: str | None) -> str:
        return f"{self._model_name(model)}: agreement, neighbours above, classifiers below"


@plain_arithmetic()
def wsd(
    lens: Models,
    sentences: Iterable[SenseSentence],
    *,
    state: int = -1,
    subsets: Sequence[str] | None = None,
    k: int = 5,
    metric: NeighbourMetric = "cosine",
    seeds: int | Sequence[int] = 5,
    split: int = 0,
    folds: int = 1,
    training: Training | None = None,
    **options: Unpack[Options],
) -> WsdResult:
    """Predict word senses from every subset of the terms.

    An instance is a word with a sense whose lemma has several senses in the given sentences. Its
    vector is the sum over its tokens. Instances are split 80/10/10 into training, validation and
    test. As in the paper the split is by instance, so that instances of one sentence may be in
    different parts. Copies of an instance, which have the same word in the same text, are in one
    part.

    Two methods choose among the senses of the lemma: the k nearest neighbours among the training
    instances of the lemma, and a classifier whose first layer is shared by all lemmas
    (:class:`~prosect.corpus.Training`). The baseline is the most frequent sense in training.

    For a lemma without a training instance, neighbours and baseline predict the alphabetically
    first sense, and the classifier's prediction is arbitrary; ``about.tokens`` gives the number of
    such instances.

    Parameters
    ----------
    lens
        One model or several: lenses, or names for ``prosect.load``. Several models are evaluated on
        the instances that all of them have read.
    sentences
        Sentences as the functions of ``prosect.corpus.readers`` return them.
    state
        The hidden state whose terms are used; the last by default.
    subsets
        Labels of subsets, such as ["h", "i+f", "all"]; all by default.
    k, metric
        The number of neighbours, and their distance, "cosine" or "l2".
    seeds
        The seeds of the classifiers, or their number.
    split
        The seed of the split.
    folds
        How many of the ten disjoint test sets are used; accuracies are over all of them. With 10,
        every instance is tested once.
    training
        Options of the classifiers; by default as in the paper.
    **options
        How to run the experiment: see :class:`~prosect.corpus.Options`.

    Raises
    ------
    TypeError
        If a sentence is not a :class:`~prosect.corpus.readers.SenseSentence`.
    ProsectError
        If an argument is out of range, there are fewer than ten distinct instances, or no text fits
        a model.
    """
    check_known(metric, get_args(NeighbourMetric), "metric")
    check_count(k, "k")
    k, folds = int(k), whole_number(folds, "folds")
    state, split = whole_number(state, "state"), whole_number(split, "split")
    if not 1 <= folds <= FOLDS:
        raise ProsectError(f"folds must be between 1 and {FOLDS}, got {folds}.")
    chosen_subsets(subsets, (*TERMS, "source"))  # refuses a wrong label before the models run
    numbers, how = seed_numbers(seeds), ResolvedTraining.of(training)
    checked = checked_sentences(sentences, SenseSentence)
    senses = senses_of(checked)
    words = word_vectors(lens, _requests(checked, senses), state, **options)
    clock = Stopwatch()
    instances = Instances.of(checked, words.positions, senses)
    if (distinct := len(np.unique(instances.copies))) < FOLDS:
        raise ProsectError(
            f"sentences must contain at least {FOLDS} distinct instances of lemmas with several "
            f"senses, got {distinct}."
        )
    parts = instances.folds(split, folds)
    tested = np.concatenate([test for _, _, test in parts])
    true_senses = instances.labels[tested]
    texts = [words.positions[i][0] for i in tested]
    most_frequent = np.concatenate(
        [instances.most_frequent(train, test) for train, _, test in parts]
    )
    most_frequent_correct = most_frequent == true_senses
    labels, knn, classifier = {}, {}, {}
    for model, terms in words.terms.items():
        names = words.names[model]
        chosen = chosen_subsets(subsets, names)
        labels[model] = [label_of(subset, names) for subset in chosen]
        knn[model], classifier[model] = instances.predict(
            instances.examples(terms, how.device),
            parts,
            indicator(chosen, names),
            partial(knn_classes, k=k, metric=metric),
            partial(
                predictions,
                seeds=numbers,
                training=how,
                progress=options.get("progress", True),
            ),
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
    settings = {
        "state": state,
        "subsets": None if subsets is None else list(subsets),
        "k": k,
        "metric": metric,
        "split": split,
        "folds": folds,
        "training": asdict(how),
    }
    classifier_correct = {model: own == true_senses for model, own in classifier.items()}
    knn_correct = {model: own == true_senses for model, own in knn.items()}
    return WsdResult(
        About.of(words.outcomes, counts, settings, numbers, after_runs=clock),
        labels,
        knn={model: correct.mean(-1) for model, correct in knn_correct.items()},
        knn_error={model: standard_error(correct, texts) for model, correct in knn_correct.items()},
        classifier={model: correct.mean(-1) for model, correct in classifier_correct.items()},
        classifier_error={
            model: standard_error(correct.mean(0), texts)
            for model, correct in classifier_correct.items()
        },
        most_frequent=float(most_frequent_correct.mean()),
        most_frequent_error=float(standard_error(most_frequent_correct[None], texts)[0]),
        knn_agreement={model: agreement(own[None], micro_f1) for model, own in knn.items()},
        classifier_agreement={model: agreement(own, micro_f1) for model, own in classifier.items()},
    )


Fold = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The indices of the instances for training, validation and test."""
Sense = tuple[str, str]
"""A lemma and one of its senses, as senses of different lemmas may have the same name."""


def senses_of(sentences: Sequence[SenseSentence]) -> dict[str, list[Sense]]:
    """The senses of every lemma with several senses in the sentences, in alphabetical order.

    Raises
    ------
    ProsectError
        If no lemma has several senses.
    """
    senses: dict[str, set[Sense]] = {}
    for sentence in sentences:
        for lemma, sense in zip(sentence.lemmas, sentence.senses, strict=True):
            if lemma is not None and sense is not None:
                senses.setdefault(lemma, set()).add((lemma, sense))
    ambiguous = {lemma: sorted(own) for lemma, own in senses.items() if len(own) > 1}
    if not ambiguous:
        raise ProsectError("No lemma has several senses in these sentences: give more sentences.")
    return ambiguous


def _requests(
    sentences: Sequence[SenseSentence], senses: Mapping[str, Sequence[Sense]]
) -> list[WordRequest]:
    """Request the words that have a sense and a lemma with several senses."""
    requests = []
    for number, sentence in enumerate(sentences):
        pairs = enumerate(zip(sentence.lemmas, sentence.senses, strict=True))
        words = tuple(i for i, (lemma, sense) in pairs if sense is not None and lemma in senses)
        if words:
            spans = spans_of(sentence)
            word_spans = tuple(spans[i] for i in words)
            requests.append(WordRequest(number, text_of(sentence), words, word_spans))
    return requests


@dataclass(frozen=True, eq=False)
class Instances:
    """Words with a sense.

    Attributes
    ----------
    lemmas
        The lemma of each instance.
    labels
        [instance], the index of its sense.
    allowed
        [instance, choice], the indices of its lemma's senses in alphabetical order, padded with −1.
    senses
        All senses.
    copies
        [instance], an id that instances share if they have the same word in the same text.
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
        positions: Sequence[WordPosition],
        lemma_senses: Mapping[str, Sequence[Sense]],
    ) -> Instances:
        """Collect the words at these positions, given the senses of each lemma."""
        lemmas = [str(sentences[s].lemmas[w]) for s, w in positions]
        senses = sorted({sense for lemma in lemmas for sense in lemma_senses[lemma]})
        index = {sense: i for i, sense in enumerate(senses)}
        width = max((len(lemma_senses[lemma]) for lemma in lemmas), default=1)
        allowed = np.full((len(positions), width), -1)
        for row, lemma in zip(allowed, lemmas, strict=True):
            row[: len(lemma_senses[lemma])] = [index[sense] for sense in lemma_senses[lemma]]
        true_senses = [
            (lemma, str(sentences[s].senses[w]))
            for lemma, (s, w) in zip(lemmas, positions, strict=True)
        ]
        copies = group_ids((normalized_text(sentences[s]), w) for s, w in positions)
        labels = np.array([index[sense] for sense in true_senses], int)
        return cls(lemmas, labels, allowed, senses, copies)

    def folds(self, seed: int, count: int) -> list[Fold]:
        """Return ``count`` splits into training, validation and test, with disjoint test sets.

        Copies of an instance are in one part of a split.
        """
        generator = torch.Generator().manual_seed(seed)
        by_copies = np.argsort(self.copies, kind="stable")
        groups = np.split(by_copies, np.cumsum(np.bincount(self.copies))[:-1])
        order = torch.randperm(len(groups), generator=generator).tolist()
        tenths = [
            np.concatenate([groups[i] for i in part]) for part in np.array_split(order, FOLDS)
        ]
        rotations = [tenths[fold:] + tenths[:fold] for fold in range(count)]
        return [(np.concatenate(rest), valid, test) for test, valid, *rest in rotations]

    def examples(self, terms: Float[torch.Tensor, "term instance d"], device: str) -> Examples:
        """Return the instances as labelled examples."""
        labels, allowed = torch.from_numpy(self.labels), torch.from_numpy(self.allowed)
        return Examples(terms.to(device), labels.to(device), allowed.to(device))

    def predict(
        self,
        examples: Examples,
        folds: Sequence[Fold],
        mix: Float[torch.Tensor, "subset term"],
        neighbours: Callable[..., np.ndarray],
        classifiers: Callable[..., np.ndarray],
    ) -> tuple[Int[np.ndarray, "subset test"], Int[np.ndarray, "seed subset test"]]:
        """Predict the test instances of all folds by neighbours and by classifiers.

        Neighbours are training instances of the same lemma; without any, the first sense of the
        lemma is predicted.
        """
        knn, learned = [], []
        for fold in folds:
            train, valid, test = (examples[part] for part in fold)
            train_lemmas, _, test_lemmas = ([self.lemmas[i] for i in part] for part in fold)
            classes = neighbours(train, train_lemmas, test, test_lemmas, mix)
            knn.append(np.where(classes == NO_CLASS, self.allowed[fold[2], 0], classes))
            learned.append(classifiers(train, valid, test, mix, len(self.senses)))
        return np.concatenate(knn, -1), np.concatenate(learned, -1)

    def most_frequent(self, train: np.ndarray, test: np.ndarray) -> Int[np.ndarray, "test"]:
        """The lemma's most frequent sense in training; the alphabetically first if several are."""
        counts = np.bincount(self.labels[train], minlength=len(self.senses))
        own = np.where(self.allowed[test] >= 0, counts[self.allowed[test]], -1)
        return self.allowed[test, own.argmax(-1)]

    def unseen(self, train: np.ndarray, test: np.ndarray) -> int:
        """The number of test instances whose lemma is not in training."""
        known = {self.lemmas[i] for i in train}
        return sum(self.lemmas[i] not in known for i in test)

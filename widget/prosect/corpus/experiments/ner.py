"""Named entities from subsets of the terms (Mickus et al. 2022, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from typing_extensions import Unpack

from prosect.anatomy.vocabulary import TERMS
from prosect.corpus.data.readers import TaggedSentence, bio, spans_of, text_of
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
from prosect.corpus.experiments.word_terms import WordVectors, word_vectors
from prosect.corpus.running.runner import Options
from prosect.corpus.running.timing import Stopwatch
from prosect.corpus.running.workers import Models
from prosect.corpus.statistics.classifier import (
    Examples,
    ResolvedTraining,
    Training,
    predictions,
)
from prosect.corpus.statistics.scores import agreement, macro_f1, seed_numbers
from prosect.errors import ProsectError
from prosect.figures.by_subset import Level, Points
from prosect.modes import plain_arithmetic
from prosect.optional import needs
from prosect.validation import whole_number

if TYPE_CHECKING:
    import pandas as pd

MIN_SENTENCES = 10
"""The minimal number of distinct sentences."""
ALL_O = "every word O"
USUAL_TAG = "the word's usual tag"


@dataclass(frozen=True, eq=False, repr=False)
class NerResult(BySubset):
    """F1 of named entities predicted from the sum of the terms of each subset.

    Attributes
    ----------
    tags
        The tags that occur in the test sentences, including O; macro-F1 is the mean over them.
    support
        [tag], the number of test words with each tag.
    by_tag
        By model, [seed, subset, tag], F1 of each tag over words.
    spans
        By model, [seed, subset], F1 of whole entities, which are correct if type, start and end are
        (seqeval).
    majority
        Macro-F1 and span F1 of predicting O for every word.
    words
        Macro-F1 and span F1 of predicting each word's most frequent tag in training, or O.
    agreements
        By model, [subset, subset], macro-F1 between the predictions from two subsets, the mean over
        pairs of seeds (:func:`~prosect.corpus.statistics.scores.agreement`), as in the authors'
        code. Micro-F1 would be high for any two subsets, as most words are O.
    """

    tags: list[str]
    support: np.ndarray
    by_tag: dict[str, np.ndarray]
    spans: dict[str, np.ndarray]
    majority: list[float]
    words: list[float]
    agreements: dict[str, np.ndarray]

    _axis: ClassVar[str] = "F1"

    @property
    def macro(self) -> dict[str, Float[np.ndarray, "seed subset"]]:
        """By model, token macro-F1."""
        return {model: scores.mean(-1) for model, scores in self.by_tag.items()}

    def to_frame(self) -> pd.DataFrame:
        """Return means and standard deviations over seeds, one row per model and subset.

        The last two rows are the baselines, which depend on neither.
        """
        pandas = needs("pandas")
        frames = [
            pandas.DataFrame(
                {
                    "model": model,
                    "subset": labels,
                    "macro_f1": self.macro[model].mean(0),
                    "macro_f1_spread": spread(self.macro[model]),
                    "span_f1": self.spans[model].mean(0),
                    "span_f1_spread": spread(self.spans[model]),
                }
            )
            for model, labels in self.subsets.items()
        ]
        table = pandas.concat(frames, ignore_index=True)
        for name, (macro, spans) in ((ALL_O, self.majority), (USUAL_TAG, self.words)):
            table.loc[len(table)] = ["baseline", name, macro, np.nan, spans, np.nan]
        return table

    def agreement(self, model: str | None = None, lower: str | None = None) -> pd.DataFrame:
        """Return the agreement of one model (upper triangle) and another (lower triangle).

        The diagonal holds the agreement between classifiers of one subset with different seeds, for
        the model in the lower triangle.

        Parameters
        ----------
        model
            The model in the upper triangle, the first by default.
        lower
            The model in the lower triangle, the second by default, or the same if there is one.

        Raises
        ------
        ProsectError
            If there is no such model, or the two have different subsets.
        """
        above = self._model_name(model)
        below = self._lower_model(above, lower)
        if self.subsets[above] != self.subsets[below]:
            raise ProsectError(
                f"Both models must have the same subsets, but the terms of {above} and {below} "
                "differ."
            )
        return triangles(self.agreements[above], self.agreements[below], self.subsets[above])

    def compare(self) -> pd.DataFrame:
        """Return macro-F1 beside the paper's (bert-base-uncased, pretrained and tuned, WNUT-16)."""
        reported = {
            f"{paper.MODEL} (paper)": paper.NER,
            f"{paper.MODEL}, tuned (paper)": paper.NER_TUNED,
        }
        return beside_the_paper(self.subsets, self.macro, reported)

    def _lower_model(self, above: str, lower: str | None) -> str:
        others = [name for name in self.subsets if name != above] or [above]
        return others[0] if lower is None else self._model_name(lower)

    def _points(self, model: str) -> list[Points]:
        labels, macro, spans = self.subsets[model], self.macro[model], self.spans[model]
        return [
            Points("token macro-F1, ± spread over seeds", labels, macro.mean(0), spread(macro)),
            Points("span F1, ± spread over seeds", labels, spans.mean(0), spread(spans)),
        ]

    def _levels(self, model: str) -> list[Level]:
        return [
            Level(f"{ALL_O}: macro-F1", self.majority[0]),
            Level(f"{USUAL_TAG}: macro-F1", self.words[0]),
        ]

    def _agreement_title(self, model: str | None) -> str:
        above = self._model_name(model)
        below = self._lower_model(above, None)
        return (
            f"agreement: {above}" if above == below else f"agreement: {above} above, {below} below"
        )


@plain_arithmetic()
def ner(
    lens: Models,
    sentences: Iterable[TaggedSentence],
    *,
    test: Iterable[TaggedSentence] | None = None,
    state: int = -1,
    subsets: Sequence[str] | None = None,
    seeds: int | Sequence[int] = 5,
    split: int = 0,
    training: Training | None = None,
    **options: Unpack[Options],
) -> NerResult:
    """Predict the tags of words from every subset of the terms.

    The vector of a word is the sum over its tokens; a classifier predicts its tag from that vector
    alone (:class:`~prosect.corpus.Training`; the best epoch is chosen by macro-F1 by default).
    Sentences are split 80/10/10 into training, validation and test, or 90/10 into training and
    validation if test sentences are given. Copies of a sentence are in one part. A word without a
    token in some model is excluded from training, and predicted as O in the test.

    Parameters
    ----------
    lens
        One model or several, such as a pretrained and a fine-tuned one: lenses, or names for
        ``prosect.load``. Several models are evaluated on the sentences that all of them have read.
    sentences
        Sentences as the functions of ``prosect.corpus.readers`` return them.
    test
        Test sentences. All of them are used; ``about.tokens`` gives the number of those whose text
        also occurs in training or validation.
    state
        The hidden state whose terms are used; the last by default.
    subsets
        Labels of subsets, such as ["h", "i+f", "all"]; all by default.
    seeds
        The seeds of the classifiers, or their number.
    split
        The seed of the split.
    training
        Options of the classifiers; by default as in the paper, with macro-F1 choosing the epoch.
    **options
        How to run the experiment: see :class:`~prosect.corpus.Options`.

    Raises
    ------
    TypeError
        If a sentence is not a :class:`~prosect.corpus.readers.TaggedSentence`.
    ProsectError
        If an argument is out of range, there are fewer than ten distinct sentences, no text fits a
        model, or scikit-learn or seqeval are not installed.
    """
    for module in ("sklearn.metrics", "seqeval.metrics"):
        needs(module)
    chosen_subsets(subsets, (*TERMS, "source"))  # refuses a wrong label before the models run
    state, split = whole_number(state, "state"), whole_number(split, "split")
    numbers = seed_numbers(seeds)
    how = ResolvedTraining.of(training, ResolvedTraining(best="macro_f1"))
    own = checked_sentences(sentences, TaggedSentence)
    separate = [] if test is None else checked_sentences(test, TaggedSentence)
    everything = [*own, *separate]
    copies = group_ids(normalized_text(sentence) for sentence in everything)
    distinct = set(copies[: len(own)].tolist())
    if len(distinct) < MIN_SENTENCES:
        raise ProsectError(
            f"sentences must contain at least {MIN_SENTENCES} distinct sentences, "
            f"got {len(distinct)}."
        )
    tags = [bio(sentence.tags) for sentence in everything]
    requests = [
        WordRequest(number, text_of(s), tuple(range(len(s.words))), spans_of(s))
        for number, s in enumerate(everything)
    ]
    words = word_vectors(lens, requests, state, **options)
    clock = Stopwatch()
    parts = split_sentences(copies[: len(own)], len(separate), split)
    tagged = TaggedWords.of(everything, tags, words, parts)
    if not tagged.read.any():
        raise ProsectError(
            "There are no test examples, as no model reads a word of the test sentences or they "
            "are too long for one: give other sentences."
        )
    labels, by_model = {}, {}
    for model, terms in words.terms.items():
        names = words.names[model]
        chosen = chosen_subsets(subsets, names)
        labels[model] = [label_of(subset, names) for subset in chosen]
        examples = Examples(terms.to(how.device), torch.from_numpy(tagged.labels).to(how.device))
        train, valid, tested = (examples[part] for part in tagged.parts)
        predicted = predictions(
            train,
            valid,
            tested,
            indicator(chosen, names),
            len(tagged.classes),
            seeds=numbers,
            training=how,
            progress=options.get("progress", True),
        )
        by_model[model] = tagged.with_unread_words(predicted)
    test_classes: list[int] = np.unique(tagged.gold).tolist()
    counts = {
        "training words": len(tagged.parts[0]),
        "validation words": len(tagged.parts[1]),
        "test words": len(tagged.gold),
        "words without a token": words.missing,
    }
    if separate:
        counts["test sentences also in training"] = int(
            np.isin(copies[len(own) :], list(distinct)).sum()
        )
    settings = {
        "state": state,
        "subsets": None if subsets is None else list(subsets),
        "split": split,
        "test": test is not None,
        "training": asdict(how),
    }
    about = About.of(words.outcomes, counts, settings, numbers, after_runs=clock)

    def by_tag(row: np.ndarray) -> np.ndarray:
        return f1_by_tag(tagged.gold, row, test_classes)

    def baseline(row: np.ndarray) -> list[float]:
        return [float(by_tag(row).mean()), tagged.span_f1(row)]

    return NerResult(
        about,
        labels,
        tags=[tagged.classes[i] for i in test_classes],
        support=np.bincount(tagged.gold)[test_classes],
        by_tag={model: _score_runs(runs, by_tag) for model, runs in by_model.items()},
        spans={model: _score_runs(runs, tagged.span_f1) for model, runs in by_model.items()},
        majority=baseline(np.zeros_like(tagged.gold)),
        words=baseline(tagged.usual_tags()),
        agreements={model: agreement(runs, macro_f1) for model, runs in by_model.items()},
    )


def f1_by_tag(
    gold: Int[np.ndarray, "word"], predicted: Int[np.ndarray, "word"], tags: Sequence[int]
) -> Float[np.ndarray, "tag"]:
    """F1 of each tag over words (scikit-learn); 0 for a tag that is never predicted."""
    metrics = needs("sklearn.metrics")
    return metrics.f1_score(gold, predicted, labels=list(tags), average=None, zero_division=0.0)


def _score_runs(runs: np.ndarray, score: Callable[[np.ndarray], Any]) -> np.ndarray:
    """The score of the predictions of every seed and subset."""
    return np.array([[score(row) for row in seed] for seed in runs])


def split_sentences(
    copies: Int[np.ndarray, "sentence"], separate: int, seed: int
) -> tuple[set[int], set[int], set[int]]:
    """Return the indices of the sentences for training, validation and test.

    Sentences with the same id in ``copies`` are in one part. If there are ``separate`` test
    sentences, they follow the others and are the test part.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(np.unique(copies)), generator=generator).numpy()
    tenth = max(1, round(len(order) / 10))

    def sentences(ids: np.ndarray) -> set[int]:
        return set(np.flatnonzero(np.isin(copies, ids)).tolist())

    test = set(range(len(copies), len(copies) + separate)) or sentences(order[:tenth])
    rest = order if separate else order[tenth:]
    return sentences(rest[tenth:]), sentences(rest[:tenth]), test


@dataclass(frozen=True, eq=False)
class TaggedWords:
    """Words with the indices of their tags.

    Attributes
    ----------
    classes
        The tags, O first.
    labels
        [word], the tag of every word that all models have read.
    parts
        The indices of these words for training, validation and test.
    gold
        [test word], the tags of all words of the test sentences.
    read
        [test word], whether all models have read it.
    forms
        The words themselves: those of ``labels``, and those of ``gold``.
    lengths
        The number of words of each test sentence.
    """

    classes: list[str]
    labels: Int[np.ndarray, "word"]
    parts: tuple[np.ndarray, np.ndarray, np.ndarray]
    gold: Int[np.ndarray, "test"]
    read: Bool[np.ndarray, "test"]
    forms: tuple[list[str], list[str]]
    lengths: list[int]

    @classmethod
    def of(
        cls,
        sentences: Sequence[TaggedSentence],
        tags: Sequence[Sequence[str]],
        words: WordVectors,
        split: tuple[set[int], set[int], set[int]],
    ) -> TaggedWords:
        """Collect the words of sentences that are split into training, validation and test."""
        classes = ["O", *sorted({tag for row in tags for tag in row} - {"O"})]
        index = {tag: i for i, tag in enumerate(classes)}
        tested = [s for s in words.sentences if s in split[2]]
        test_positions = [(s, w) for s in tested for w in range(len(sentences[s].words))]
        read = set(words.positions)

        def labels(positions: Sequence[WordPosition]) -> np.ndarray:
            return np.array([index[tags[s][w]] for s, w in positions], dtype=int)

        def forms(positions: Sequence[WordPosition]) -> list[str]:
            return [sentences[s].words[w] for s, w in positions]

        def part(numbers: set[int]) -> np.ndarray:
            return np.flatnonzero([s in numbers for s, _ in words.positions])

        return cls(
            classes,
            labels(words.positions),
            (part(split[0]), part(split[1]), part(split[2])),
            labels(test_positions),
            np.array([position in read for position in test_positions]),
            (forms(words.positions), forms(test_positions)),
            [len(sentences[s].words) for s in tested],
        )

    def with_unread_words(
        self, predicted: Int[np.ndarray, "*runs read"]
    ) -> Int[np.ndarray, "*runs test"]:
        """Extend predictions to all test words: O for words that some model has not read."""
        extended = np.zeros((*predicted.shape[:-1], len(self.gold)), dtype=predicted.dtype)
        extended[..., self.read] = predicted
        return extended

    def usual_tags(self) -> Int[np.ndarray, "test"]:
        """The most frequent training tag of each test word, the first if several are; O if new."""
        counts: dict[str, np.ndarray] = {}
        for i in self.parts[0]:
            own = counts.setdefault(self.forms[0][i], np.zeros(len(self.classes), dtype=int))
            own[self.labels[i]] += 1
        return np.array([counts[form].argmax() if form in counts else 0 for form in self.forms[1]])

    def span_f1(self, predicted: Int[np.ndarray, "test"]) -> float:
        """F1 of whole entities (seqeval, as in the CoNLL script)."""
        metrics = needs("seqeval.metrics")
        gold_rows, predicted_rows = (
            self._tags_by_sentence(self.gold),
            self._tags_by_sentence(predicted),
        )
        return float(metrics.f1_score(gold_rows, predicted_rows, zero_division=0))

    def _tags_by_sentence(self, labels: np.ndarray) -> list[list[str]]:
        rows = np.split(labels, np.cumsum(self.lengths)[:-1])
        return [[self.classes[i] for i in row] for row in rows]

"""Named entities from subsets of the terms (Mickus et al. 2022, section 6)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from typing_extensions import Unpack

from prosect.anatomy.vocabulary import TERMS
from prosect.corpus.data.readers import TaggedSentence, bio, spans_of, text_of
from prosect.corpus.data.words import Place, Wanted, alike, listed, wording
from prosect.corpus.experiments import paper
from prosect.corpus.experiments.by_subset import BySubset, beside_the_paper, spread, triangles
from prosect.corpus.experiments.result import About
from prosect.corpus.experiments.subsets import chosen_subsets, indicator, label_of
from prosect.corpus.experiments.word_terms import Words, words_of
from prosect.corpus.running.runner import Options
from prosect.corpus.running.workers import Models
from prosect.corpus.statistics.classifier import Examples, Settled, Training, predictions
from prosect.corpus.statistics.scores import agreement, macro_f1, numbered
from prosect.errors import ProsectError
from prosect.figures.by_subset import Level, Points
from prosect.optional import needs
from prosect.validation import whole_number

if TYPE_CHECKING:
    import pandas as pd

LEAST = 10
"""How many different sentences there must be at least."""
EVERY_O = "every word O"
USUAL = "the word's usual tag"


@dataclass(frozen=True, eq=False, repr=False)
class NerResult(BySubset):
    """How well names are found from the sum of some terms.

    Attributes
    ----------
    tags
        The tags that occur in the test sentences, O among them: macro-F1 is the mean over these.
    support
        [tag], how often each occurs there.
    by_tag
        By model, [seed, subset, tag], F1 of each tag over words.
    spans
        By model, [seed, subset], F1 of whole names: right are those with the right type, beginning
        and end (seqeval).
    majority
        Macro-F1 and span F1 where every word is O.
    words
        Macro-F1 and span F1 where every word has the tag that it has most often in training, or O.
    agreements
        By model, [subset, subset], macro-F1 of the predictions from one against those from another,
        the mean over pairs of seeds (:func:`~prosect.corpus.statistics.scores.agreement`). As in the authors'
        code; micro-F1 would be high for any two, most words being O.
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
        """A row for each model and subset: means and standard deviations over seeds.

        The last two rows are the baselines', which no model and no subset changes.
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
        for name, (macro, spans) in ((EVERY_O, self.majority), (USUAL, self.words)):
            table.loc[len(table)] = ["baseline", name, macro, np.nan, spans, np.nan]
        return table

    def agreement(self, model: str | None = None, lower: str | None = None) -> pd.DataFrame:
        """Of one model in the upper triangle and another, such as the tuned one, in the lower.

        On the diagonal is how well classifiers of one subset agree that differ in their seed, of the
        model in the lower one.

        Parameters
        ----------
        model
            The first by default.
        lower
            The second by default, or the same where there is only one.

        Raises
        ------
        ProsectError
            If there is no such model, or the two have not the same subsets.
        """
        above = self._named(model)
        below = self._below(above, lower)
        if self.subsets[above] != self.subsets[below]:
            raise ProsectError(f"{above} and {below} have other terms, so other subsets of them.")
        return triangles(self.agreements[above], self.agreements[below], self.subsets[above])

    def compare(self) -> pd.DataFrame:
        """Macro-F1 beside the paper's: bert-base-uncased, pretrained and tuned, on WNUT-16."""
        reported = {
            f"{paper.MODEL} (paper)": paper.NER,
            f"{paper.MODEL}, tuned (paper)": paper.NER_TUNED,
        }
        return beside_the_paper(self.subsets, self.macro, reported)

    def _below(self, above: str, lower: str | None) -> str:
        others = [name for name in self.subsets if name != above] or [above]
        return others[0] if lower is None else self._named(lower)

    def _points(self, model: str) -> list[Points]:
        labels, macro, spans = self.subsets[model], self.macro[model], self.spans[model]
        return [
            Points("token macro-F1, ± spread over seeds", labels, macro.mean(0), spread(macro)),
            Points("span F1, ± spread over seeds", labels, spans.mean(0), spread(spans)),
        ]

    def _levels(self, model: str) -> list[Level]:
        return [
            Level(f"{EVERY_O}: macro-F1", self.majority[0]),
            Level(f"{USUAL}: macro-F1", self.words[0]),
        ]

    def _sides(self, model: str | None) -> str:
        above = self._named(model)
        below = self._below(above, None)
        return (
            f"agreement: {above}" if above == below else f"agreement: {above} above, {below} below"
        )


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
    """How well the tags of words are told from every subset of the terms.

    A word's vector is the sum over its tokens; a classifier tells its tag from that alone
    (:class:`~prosect.corpus.Training`; the best epoch is by macro-F1 unless it says
    otherwise). Sentences are split 80/10/10 into training, validation and test, or 90/10 into
    training and validation where test sentences are given; copies of a sentence are in the same
    part. A word that no token of a model covers is left out of training, and O in the test.

    Parameters
    ----------
    lens
        A model or several, such as a pretrained one and a tuned one: lenses, or names for
        ``prosect.load``. Several are judged on the sentences that all of them have read.
    sentences
        As :mod:`prosect.corpus.readers` reads them.
    test
        The same, to be judged on. They are used as they are: ``about.tokens`` counts those that are
        also in training or validation, with the same words.
    state
        Of which hidden state the terms are; the last by default.
    subsets
        The labels of some subsets, such as ["h", "i+f", "all"]; all by default.
    seeds
        Of the classifiers, or how many.
    split
        The seed of the split.
    training
        How classifiers are trained, where not as the paper does it and by the best macro-F1.
    **options
        How to run it: see :class:`~prosect.corpus.Options`.

    Raises
    ------
    TypeError
        If a sentence is none that a reader made.
    ProsectError
        If an argument is out of range, there are fewer than ten different sentences, no text fits
        a model, or scikit-learn or seqeval are not installed.
    """
    for module in ("sklearn.metrics", "seqeval.metrics"):
        needs(module)
    chosen_subsets(subsets, (*TERMS, "source"))  # a wrong label is told before the work begins
    state, split = whole_number(state, "state"), whole_number(split, "split")
    numbers, how = numbered(seeds), Settled.of(training, Settled(best="macro_f1"))
    given = listed(sentences, TaggedSentence)
    apart = [] if test is None else listed(test, TaggedSentence)
    everything = [*given, *apart]
    copies = alike(wording(sentence) for sentence in everything)
    different = set(copies[: len(given)].tolist())
    if len(different) < LEAST:
        raise ProsectError(
            f"Learning takes at least {LEAST} different sentences, not {len(different)}."
        )
    tags = [bio(sentence.tags) for sentence in everything]
    items = [
        Wanted(number, text_of(s), tuple(range(len(s.words))), spans_of(s))
        for number, s in enumerate(everything)
    ]
    words = words_of(lens, items, state, **options)
    started = time.perf_counter()
    tagged = Tagged.of(everything, tags, words, _split(copies[: len(given)], len(apart), split))
    if not tagged.read.any():
        raise ProsectError(
            "There are no test examples: no word of a test sentence was read by every model; a "
            "sentence that is too long for one is left out. Give others."
        )
    labels, found = {}, {}
    for model, terms in words.terms.items():
        names = words.names[model]
        chosen = chosen_subsets(subsets, names)
        labels[model] = [label_of(subset, names) for subset in chosen]
        examples = Examples(terms.to(how.device), torch.from_numpy(tagged.labels).to(how.device))
        train, valid, judged = (examples[part] for part in tagged.parts)
        read = predictions(
            train,
            valid,
            judged,
            indicator(chosen, names),
            len(tagged.classes),
            seeds=numbers,
            how=how,
            progress=options.get("progress", True),
        )
        found[model] = tagged.whole(read)
    kept: list[int] = np.unique(tagged.gold).tolist()
    never = np.zeros_like(tagged.gold)
    usual = tagged.usual()
    counts = {
        "training words": len(tagged.parts[0]),
        "validation words": len(tagged.parts[1]),
        "test words": len(tagged.gold),
        "words without a token": words.missing,
    }
    if apart:
        counts["test sentences also in training"] = int(
            np.isin(copies[len(given) :], list(different)).sum()
        )
    asked = {
        "state": state,
        "subsets": None if subsets is None else list(subsets),
        "split": split,
        "test": test is not None,
        "training": asdict(how),
    }
    about = About.of(words.outcomes, counts, asked, numbers)

    def by_tag(row: np.ndarray) -> np.ndarray:
        return f1_by_tag(tagged.gold, row, kept)

    def scores(row: np.ndarray) -> list[float]:
        return [float(by_tag(row).mean()), tagged.span_f1(row)]

    return NerResult(
        replace(about, seconds=about.seconds + time.perf_counter() - started),
        labels,
        tags=[tagged.classes[i] for i in kept],
        support=np.bincount(tagged.gold)[kept],
        by_tag={model: _each(some, by_tag) for model, some in found.items()},
        spans={model: _each(some, tagged.span_f1) for model, some in found.items()},
        majority=scores(never),
        words=scores(usual),
        agreements={model: agreement(some, macro_f1) for model, some in found.items()},
    )


def f1_by_tag(
    gold: Int[np.ndarray, "word"], found: Int[np.ndarray, "word"], tags: Sequence[int]
) -> Float[np.ndarray, "tag"]:
    """F1 of each of the tags over words (scikit-learn); 0 where one is never found."""
    metrics = needs("sklearn.metrics")
    return metrics.f1_score(gold, found, labels=list(tags), average=None, zero_division=0.0)


def _each(found: np.ndarray, score: Callable[[np.ndarray], Any]) -> np.ndarray:
    """The score of every seed and subset."""
    return np.array([[score(row) for row in seed] for seed in found])


def _split(
    copies: Int[np.ndarray, "sentence"], apart: int, seed: int
) -> tuple[set[int], set[int], set[int]]:
    """The numbers of the sentences for training, validation and test.

    Sentences of one number in ``copies`` are in one part; ``apart`` more are the test.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(np.unique(copies)), generator=generator).numpy()
    tenth = max(1, round(len(order) / 10))

    def those(chosen: np.ndarray) -> set[int]:
        return set(np.flatnonzero(np.isin(copies, chosen)).tolist())

    test = set(range(len(copies), len(copies) + apart)) or those(order[:tenth])
    left = order if apart else order[tenth:]
    return those(left[tenth:]), those(left[:tenth]), test


@dataclass(frozen=True, eq=False)
class Tagged:
    """Words with the numbers of their tags.

    Attributes
    ----------
    classes
        The tags, O first.
    labels
        [word], of every word that all models have read.
    parts
        Which of these words are for training, validation and test.
    gold
        [test word], of all words of the test sentences.
    read
        [test word], whether all models have read it.
    forms
        Of all words: first those of ``labels``, then those of ``gold``.
    lengths
        How many words each test sentence has.
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
        words: Words,
        split: tuple[set[int], set[int], set[int]],
    ) -> Tagged:
        """Of sentences whose numbers are split into training, validation and test."""
        classes = ["O", *sorted({tag for row in tags for tag in row} - {"O"})]
        number = {tag: i for i, tag in enumerate(classes)}
        tested = [s for s in words.sentences if s in split[2]]
        asked = [(s, w) for s in tested for w in range(len(sentences[s].words))]
        known = set(words.places)

        def of_places(places: Sequence[Place]) -> np.ndarray:
            return np.array([number[tags[s][w]] for s, w in places], dtype=int)

        def forms(places: Sequence[Place]) -> list[str]:
            return [sentences[s].words[w] for s, w in places]

        def of_part(numbers: set[int]) -> np.ndarray:
            return np.flatnonzero([s in numbers for s, _ in words.places])

        return cls(
            classes,
            of_places(words.places),
            (of_part(split[0]), of_part(split[1]), of_part(split[2])),
            of_places(asked),
            np.array([place in known for place in asked]),
            (forms(words.places), forms(asked)),
            [len(sentences[s].words) for s in tested],
        )

    def whole(self, found: Int[np.ndarray, "*runs read"]) -> Int[np.ndarray, "*runs test"]:
        """Of all test words, where some models have not read is O."""
        whole = np.zeros((*found.shape[:-1], len(self.gold)), dtype=found.dtype)
        whole[..., self.read] = found
        return whole

    def usual(self) -> Int[np.ndarray, "test"]:
        """The commonest tag of each test word in training, of equals the first; O where it is new."""
        seen: dict[str, np.ndarray] = {}
        for i in self.parts[0]:
            counts = seen.setdefault(self.forms[0][i], np.zeros(len(self.classes), dtype=int))
            counts[self.labels[i]] += 1
        return np.array([seen[form].argmax() if form in seen else 0 for form in self.forms[1]])

    def span_f1(self, found: Int[np.ndarray, "test"]) -> float:
        """F1 of whole names (seqeval, as in CoNLL's own script)."""
        metrics = needs("seqeval.metrics")
        gold, guessed = self._rows(self.gold), self._rows(found)
        return float(metrics.f1_score(gold, guessed, zero_division=0))

    def _rows(self, numbers: np.ndarray) -> list[list[str]]:
        """The tags, sentence by sentence."""
        rows = np.split(numbers, np.cumsum(self.lengths)[:-1])
        return [[self.classes[i] for i in row] for row in rows]

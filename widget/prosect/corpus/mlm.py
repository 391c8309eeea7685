"""Predicting tokens from every subset of the terms (Mickus et al. 2022, section 4.1).

With the model's own head on the sum of a subset's terms, which was trained for the sum of all of
them; and with a linear head that is learned for each subset.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import Unpack

from prosect.anatomy.vocabulary import TERMS
from prosect.corpus import paper
from prosect.corpus.classifier import Examples, Training, predictions
from prosect.corpus.masking import Chooser, Masking, content
from prosect.corpus.moments import Arrays, Clustered
from prosect.corpus.opening import models_of
from prosect.corpus.result import About, Result
from prosect.corpus.runner import Options, concatenate, run
from prosect.corpus.subsets import chosen_subsets, indicator, label_of
from prosect.corpus.texts import Texts, read
from prosect.errors import ProsectError, UnsupportedModelError
from prosect.figures.by_subset import Bars, by_subset, by_subset_for_papers
from prosect.lens import Lens
from prosect.predict import logits_of

if TYPE_CHECKING:
    import pandas as pd
    from bqplot.figure import Figure as BqplotFigure
    from matplotlib.figure import Figure

Head = Literal["default", "learned"]
HEADS: tuple[Head, ...] = get_args(Head)
TRAINING = Training(shape="linear", epochs=20, patience=3, batch=64)
"""How a head is learned, unless it is said."""


@dataclass(frozen=True, eq=False, repr=False)
class MlmResult(Result):
    """How many tokens are predicted right from each subset of the terms.

    Figures are by what was judged: "default", the model's own head on all targets; "default_test",
    the same on those of the test texts; "learned", heads learned for each subset, on the test
    texts. What was not asked for is not there.

    Attributes
    ----------
    objective
        "masked token" or "next token".
    subsets
        Their labels, such as "i+h", and "all".
    accuracy
        [subset] by what was judged; the mean over seeds for learned heads.
    error
        [subset] by what was judged: the standard error of the accuracy, with texts as the
        independent draws.
    by_seed
        [seed, subset], the accuracy of the learned heads of each seed; no seeds without them.
    baseline
        By what was judged: the share of the most frequent target; on the test texts, of the one that
        is the most frequent in the training texts.
    agreement
        [subset, subset] by what was judged: the share of targets for which two subsets predict the
        same token, right or wrong; the mean over seeds for learned heads.
    """

    objective: str
    subsets: list[str]
    accuracy: dict[str, np.ndarray]
    error: dict[str, np.ndarray]
    by_seed: np.ndarray
    baseline: dict[str, float]
    agreement: dict[str, np.ndarray]

    @property
    def spread(self) -> np.ndarray:
        """[subset], the standard deviation over seeds of the learned heads' accuracy."""
        seeds = len(self.by_seed)
        return self.by_seed.std(0, ddof=1) if seeds > 1 else np.full(len(self.subsets), np.nan)

    def to_frame(self) -> pd.DataFrame:
        """A row a subset and one for the most frequent token; accuracies with their errors.

        The columns of learned heads are their mean, the spread over seeds, and the standard error.
        """
        import pandas as pd

        columns: dict[str, list[float]] = {}
        for judged, accuracy in self.accuracy.items():
            columns[judged] = [*accuracy, self.baseline[judged]]
            if judged == "learned":
                columns["learned_spread"] = [*self.spread, np.nan]
            columns[f"{judged}_error"] = [*self.error[judged], np.nan]
        return pd.DataFrame(columns, index=pd.Index([*self.subsets, MOST_FREQUENT], name="terms"))

    def compare(self) -> pd.DataFrame:
        """Accuracy × 100 by subset and head beside the paper's, which are of bert-base-uncased."""
        import pandas as pd

        heads = [head for head in HEADS if head in self.accuracy]
        columns = {
            (head, whose): values
            for head in heads
            for whose, values in (
                ("here", 100 * self.accuracy[head]),
                (f"{paper.MODEL} (paper)", self._reported(head)),
            )
        }
        return pd.DataFrame(columns, index=pd.Index(self.subsets, name="terms"))

    def _reported(self, head: Head) -> list[float]:
        return [paper.MLM[head].get(subset, np.nan) for subset in self.subsets]

    def plot(self) -> BqplotFigure:
        """Accuracy by subset, a bar a head (bqplot)."""
        return by_subset(self.subsets, self._bars(), AXIS, self._title())

    def figure(self) -> Figure:
        """Accuracy by subset, a bar a head (matplotlib).

        Error bars are the standard error; dots are the seeds of learned heads; the dashed lines are
        the most frequent token's share.
        """
        return by_subset_for_papers(self.subsets, self._bars(), AXIS, self._title())

    def _title(self) -> str:
        return f"{next(iter(self.about.models))}: {self.objective}"

    def _bars(self) -> list[Bars]:
        return [
            Bars(
                name=f"{head} head",
                mean=self.accuracy[head],
                error=self.error[head],
                runs=self.by_seed if head == "learned" else None,
                baseline=self.baseline[head],
            )
            for head in HEADS
            if head in self.accuracy
        ]


MOST_FREQUENT = "most frequent"
AXIS = "tokens predicted right"


def mlm(
    lens: Lens | str,
    texts: Texts | Any,
    *,
    heads: Iterable[Head] = HEADS,
    subsets: Iterable[str] | None = None,
    masking: Masking | None = None,
    training: Training = TRAINING,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    column: str = "text",
    **options: Unpack[Options],
) -> MlmResult:
    """How well tokens are predicted from every subset of the terms of the last hidden state.

    In masked models 15 % of a text's tokens are chosen and hidden, and each is predicted from its
    own state; in causal models nothing is hidden, and as many tokens are predicted from the state
    before them. Special and unknown tokens are never predicted.

    The model's own head is used as the model uses it. A learned head is one linear layer from the
    sum of a subset's terms to the tokens that occur as targets in the training texts: a target that
    does not counts as an error. Texts are split 80/10/10 into training, validation (when to stop)
    and test, by content, so that the same text is never in two; by the seed of the masking.

    Parameters
    ----------
    lens
        A model, or a name for ``prosect.load``.
    texts
        An iterable of strings, the path of a file with a text a line, or a dataset.
    heads
        "default", the model's own; "learned". Both by default; a model without an output head has
        only the second.
    subsets
        Labels such as "h", "f+c" and "all"; all 15 by default.
    masking
        How tokens are chosen and hidden; 15 %, of which 80 % are masked and 10 % random, by default.
    training
        How heads are learned.
    seeds
        Of the learned heads, one run each.
    column
        The column of a dataset that has the texts.
    **options
        How to run it: see :class:`~prosect.corpus.runner.Options`. A checkpoint keeps what the
        model made of the texts: learning other heads from it is quick.

    Raises
    ------
    UnsupportedModelError
        If the model has no head that predicts tokens and one is asked for, or its tokenizer no mask.
    ProsectError
        If there is no text, none fits the model, there are too few to learn from, or an argument is
        not one of those.
    ReconstructionError
        If the terms of a text do not add up to what the model computed.
    """
    ((name, model),) = _one(models_of(lens)).items()
    listed = read(texts, column)
    wanted = _heads(heads, seeds)
    chosen = chosen_subsets(subsets, TERMS)
    labels = tuple(label_of(subset, TERMS) for subset in chosen)
    masking = masking or Masking()
    outcome = run(Extract(masking, wanted, labels), model, listed, **options)
    started = time.perf_counter()
    arrays = outcome.arrays
    texts_of, targets = arrays["texts"], arrays["targets"]
    if not len(targets):
        raise ProsectError("No text has a token to predict: give texts of two words or more.")
    scores = {}
    counts = {"targets": len(targets)}
    if "default" in wanted:
        scores["default"] = Scores.of(arrays["default"][None], targets, texts_of, targets)
    if "learned" in wanted:
        part = split(texts_of, masking.seed)
        known, test = targets[part == TRAIN], part == TEST
        judged = targets[test], texts_of[test], known
        if "default" in wanted:
            scores["default_test"] = Scores.of(arrays["default"][None, test], *judged)
        mix, bar = indicator(chosen, TERMS), options.get("progress", True)
        found = learned(arrays["terms"], targets, part, mix, training, seeds, bar)
        scores["learned"] = Scores.of(found, *judged)
        counts |= {
            "test targets": int(test.sum()),
            "classes": len(np.unique(known)),
            "test targets of no class": int((~np.isin(targets[test], known)).sum()),
        }
    settings = {"heads": list(wanted), "masking": asdict(masking), "training": asdict(training)}
    about = About.of({name: outcome}, counts, settings, tuple(seeds) if "learned" in wanted else ())
    runs = {judged: score.accuracy for judged, score in scores.items()}
    return MlmResult(
        replace(about, seconds=about.seconds + time.perf_counter() - started),
        objective="next token" if arrays["causal"] else "masked token",
        subsets=list(labels),
        accuracy={judged: accuracy.mean(0) for judged, accuracy in runs.items()},
        error={judged: score.error for judged, score in scores.items()},
        by_seed=runs.get("learned", np.zeros((0, len(labels)))),
        baseline={judged: score.baseline for judged, score in scores.items()},
        agreement={judged: score.agreement for judged, score in scores.items()},
    )


def _one(models: dict[str, Lens | str]) -> dict[str, Lens | str]:
    if len(models) > 1:
        raise ProsectError(f"mlm takes one model, not {len(models)}: call it once for each.")
    return models


def _heads(heads: Iterable[Head], seeds: Sequence[int]) -> tuple[Head, ...]:
    listed = [heads] if isinstance(heads, str) else list(heads)
    unknown = [head for head in listed if head not in HEADS]
    if unknown or not listed:
        named = f"no head {unknown[0]!r}" if unknown else "no head to predict with"
        raise ProsectError(f"There is {named}: choose from {', '.join(HEADS)}.")
    if "learned" in listed and not len(seeds):
        raise ProsectError("There are no seeds: give at least one, or leave out learned heads.")
    return tuple(head for head in HEADS if head in listed)


TRAIN, VALID, TEST = range(3)


def split(texts: np.ndarray, seed: int) -> np.ndarray:
    """The part of each target, 80/10/10 by text: TRAIN, VALID or TEST.

    Parameters
    ----------
    texts
        [target], a number for the content of the text that each is of.
    seed
        Of the split, which depends on nothing else.

    Raises
    ------
    ProsectError
        If there are fewer than three different texts.
    """
    different, number = np.unique(texts, return_inverse=True)
    if len(different) < 3:
        raise ProsectError(
            f"Heads cannot be learned from {len(different)} different texts, which are split into "
            "training, validation and test: give more, or ask for heads=['default'] alone."
        )
    held = max(1, round(len(different) / 10))
    order = np.random.default_rng(content(f"split {seed}")).permutation(len(different))
    part = np.full(len(different), TRAIN)
    part[order[:held]] = TEST
    part[order[held : 2 * held]] = VALID
    return part[number]


def learned(
    terms: Float[np.ndarray, "target term d"],
    targets: Int[np.ndarray, "target"],
    part: Int[np.ndarray, "target"],
    mix: Float[Tensor, "subset term"],
    training: Training,
    seeds: Sequence[int],
    progress: bool,
) -> Int[np.ndarray, "seed test subset"]:
    """The tokens that heads learned from the training targets predict for the test targets."""
    classes, labels = np.unique(targets[part == TRAIN]), np.full(len(targets), -1)
    known = np.isin(targets, classes)
    labels[known] = np.searchsorted(classes, targets[known])

    def examples(chosen: Bool[np.ndarray, "target"]) -> Examples:
        own = torch.from_numpy(np.ascontiguousarray(terms[chosen].swapaxes(0, 1)))
        return Examples(own, torch.from_numpy(labels[chosen]))

    found = predictions(
        examples(part == TRAIN),
        examples((part == VALID) & known),  # what has no class says nothing of when to stop
        examples(part == TEST),
        mix,
        len(classes),
        seeds=seeds,
        how=training,
        progress=progress,
    )
    return classes[found.numpy()].swapaxes(1, 2)


@dataclass(frozen=True)
class Scores:
    """How right some runs are: accuracy [run, subset], and the rest as in :class:`MlmResult`."""

    accuracy: np.ndarray
    error: np.ndarray
    baseline: float
    agreement: np.ndarray

    @classmethod
    def of(
        cls,
        predicted: Int[np.ndarray, "run target subset"],
        targets: Int[np.ndarray, "target"],
        texts: Int[np.ndarray, "target"],
        known: Int[np.ndarray, "known"],
    ) -> Scores:
        """Of what was predicted for targets of texts; ``known`` are those that say what is frequent."""
        right = predicted == targets[:, None]
        different, number, counts = np.unique(texts, return_inverse=True, return_counts=True)
        by_text = np.zeros((len(different), right.shape[-1]))
        np.add.at(by_text, number, right.mean(0))
        values, times = np.unique(known, return_counts=True)
        equal = [(predicted[..., [s]] == predicted).mean((0, 1)) for s in range(right.shape[-1])]
        return cls(
            accuracy=right.mean(1),
            error=Clustered.of(by_text, counts).error,
            baseline=float((targets == values[times.argmax()]).mean()),
            agreement=np.stack(equal),
        )


@dataclass(frozen=True)
class Extract:
    """The terms of the states that predict, what they should predict, and what the head does."""

    masking: Masking
    heads: tuple[Head, ...]
    subsets: tuple[str, ...]

    name: ClassVar[str] = "mlm"

    def measure(self, lens: Lens, items: Sequence[str]) -> Arrays:
        """Of the targets of a batch: their terms [target, term, d] and their texts' contents.

        "default" [target, subset] is the token that the model's own head predicts.
        """
        choose = Chooser(lens, self.masking)
        chosen = [choose(text) for text in items]
        traces = lens.traces(
            items, batch_size=len(items), instead=[where.instead for where in chosen]
        )
        terms = torch.cat(
            [
                trace.terms().values[:, -1, where.positions].movedim(1, 0)
                for trace, where in zip(traces, chosen, strict=True)
            ]
        )
        keys = [content(text) for text in items]
        found = {
            "targets": np.array([id for where in chosen for id in where.targets], np.int64),
            "texts": np.repeat(np.array(keys, np.uint64), [len(c.targets) for c in chosen]),
            "causal": np.bool_(lens.anatomy.causal),
        }
        if "learned" in self.heads:
            found["terms"] = terms.to("cpu", torch.float32).numpy()
        if "default" in self.heads:
            found["default"] = self._default(lens, terms).cpu().numpy()
        return found

    def merge(self, first: Arrays, second: Arrays) -> Arrays:
        """The targets of the first texts, then those of the others."""
        causal = {"causal": first["causal"]}
        return {**concatenate(_without_causal(first), _without_causal(second)), **causal}

    def _default(
        self, lens: Lens, terms: Float[Tensor, "target term d"]
    ) -> Int[Tensor, "target subset"]:
        if lens.decoder is not None:
            raise UnsupportedModelError(
                f"The head of {lens.name} sits on its decoder, not on the states that read the text: "
                "learn heads alone, with heads=['learned']."
            )
        mix = indicator(chosen_subsets(self.subsets, TERMS), TERMS).to(terms)
        sums = torch.einsum("st,ntd->nsd", mix, terms)
        try:
            best = [x.argmax(-1) for x in logits_of(lens.model, lens.anatomy, sums.flatten(0, 1))]
        except UnsupportedModelError as error:
            sentence = str(error).removesuffix(".")
            raise UnsupportedModelError(
                f"{sentence}, or learn heads alone, with heads=['learned']."
            ) from error
        return torch.cat(best).unflatten(0, sums.shape[:2])


def _without_causal(arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if name != "causal"}

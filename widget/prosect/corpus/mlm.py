"""Predicting tokens from every subset of the terms (Mickus et al. 2022, section 4.1).

With the model's own head on the sum of a subset's terms, which was trained for the sum of all of
them; and with a linear head that is learned for each subset.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import Unpack

from prosect.analyses.predictions import logits_of
from prosect.anatomy.vocabulary import TERMS
from prosect.corpus import paper
from prosect.corpus.by_subset import BySubset, beside_the_paper, spread, triangles
from prosect.corpus.classifier import Examples, Settled, Training, predictions
from prosect.corpus.masking import Chooser, Masking, content
from prosect.corpus.moments import Arrays
from prosect.corpus.opening import Models, models_of
from prosect.corpus.result import About
from prosect.corpus.runner import Options, concatenate, run
from prosect.corpus.scores import agreement, micro_f1, numbered, standard_error
from prosect.corpus.subsets import chosen_subsets, indicator, label_of
from prosect.corpus.texts import Texts, read
from prosect.errors import ProsectError, UnsupportedModelError
from prosect.figures.by_subset import Level, Points
from prosect.lens import Lens
from prosect.optional import needs
from prosect.validation import whole_number

if TYPE_CHECKING:
    import pandas as pd

Head = Literal["default", "learned"]
HEADS: tuple[Head, ...] = get_args(Head)
OWN = Settled(shape="linear", epochs=20, batch=64)
"""How heads are learned."""


@dataclass(frozen=True, eq=False, repr=False)
class MlmResult(BySubset):
    """How many tokens are predicted right from the sum of some terms, as accuracies.

    Everything is by model; what was not asked for is empty.

    Attributes
    ----------
    objective
        "masked token" or "next token".
    default, default_error
        [subset], of the model's own head on all targets, and the standard error, with texts as the
        independent draws.
    default_test, default_test_error
        The same on the targets of the test texts, on which learned heads are judged; figures and
        the paper's numbers stand beside these where there are learned heads.
    learned
        [seed, subset], of the learned heads on the test texts.
    learned_error
        [subset], the standard error of the mean over seeds, with texts as the independent draws.
    most_frequent
        Of the most frequent target of the training texts, on the test texts; where no head is
        learned, of the most frequent of all on all.
    default_agreement, default_test_agreement, learned_agreement
        [subset, subset], the share of targets for which two subsets predict the same token, right
        or wrong; of learned heads, the mean over pairs of seeds
        (:func:`~prosect.corpus.scores.agreement`). The first is on all targets, the others are on
        those of the test texts.
    """

    objective: dict[str, str]
    default: dict[str, np.ndarray]
    default_error: dict[str, np.ndarray]
    default_test: dict[str, np.ndarray]
    default_test_error: dict[str, np.ndarray]
    learned: dict[str, np.ndarray]
    learned_error: dict[str, np.ndarray]
    most_frequent: dict[str, float]
    default_agreement: dict[str, np.ndarray]
    default_test_agreement: dict[str, np.ndarray]
    learned_agreement: dict[str, np.ndarray]

    _axis: ClassVar[str] = "accuracy"

    def to_frame(self) -> pd.DataFrame:
        """A row for each model and subset, with the baseline beside each.

        ``learned`` is the mean over seeds, ``learned_spread`` the standard deviation (NaN for a
        single seed); the errors are standard errors.
        """
        pandas = needs("pandas")
        frames = []
        for model, labels in self.subsets.items():
            columns: dict[str, Any] = {"model": model, "subset": labels}
            for name in ("default", "default_error", "default_test", "default_test_error"):
                if model in (values := getattr(self, name)):
                    columns[name] = values[model]
            if model in self.learned:
                columns["learned"] = self.learned[model].mean(0)
                columns["learned_spread"] = spread(self.learned[model])
                columns["learned_error"] = self.learned_error[model]
            columns["most_frequent_token"] = self.most_frequent[model]
            frames.append(pandas.DataFrame(columns))
        return pandas.concat(frames, ignore_index=True)

    def agreement(self, model: str | None = None) -> pd.DataFrame:
        """Of one model: its own head in the upper triangle, learned heads in the lower.

        Both on the targets of the test texts. Where there is only one of the two, it is in both
        triangles; the model's own head alone is judged on all targets.
        """
        name = self._named(model)
        own, learned = self._own("agreement").get(name), self.learned_agreement.get(name)
        upper, lower = own if own is not None else learned, learned if learned is not None else own
        assert upper is not None
        assert lower is not None
        return triangles(upper, lower, self.subsets[name])

    def compare(self) -> pd.DataFrame:
        """Accuracies by head beside the paper's (bert-base-uncased), as a reader's slides give them.

        They have those of f alone, and say that it beats h alone and loses by leaving out c. Where
        there are learned heads, those of the model's own head are on the test targets too.

        Raises
        ------
        ProsectError
            If f alone is not among the subsets.
        """
        labels, runs, reported = {}, {}, {}
        own = {model: accuracy[None] for model, accuracy in self._own().items()}
        for head, found in (("default", own), ("learned", self.learned)):
            for model, accuracy in found.items():
                name = f"{model}, {head} head"
                labels[name], runs[name] = self.subsets[model], accuracy
                reported[f"{paper.MODEL} (paper), {head} head"] = paper.MLM[head]
        return beside_the_paper(labels, runs, reported)

    def _own(self, what: Literal["error", "agreement"] | None = None) -> dict[str, np.ndarray]:
        """Of the model's own head, on the targets on which learned heads are judged if there are."""
        of = "default_test" if self.learned else "default"
        return getattr(self, of if what is None else f"{of}_{what}")

    def _judged_on(self, model: str) -> str:
        """How many targets the figures are of."""
        kind = "test targets" if model in self.learned else "targets"
        of = f" of {model}" if len(self.subsets) > 1 else ""
        return f"{self.about.tokens[kind + of]:,} {kind}"

    def _title(self, model: str) -> str:
        return f"{model}, {self._judged_on(model)}"

    def _points(self, model: str) -> list[Points]:
        labels, points = self.subsets[model], []
        if model in self.default:
            name = "the model's own head (± standard error)"
            own, error = self._own()[model], self._own("error")[model]
            points.append(Points(name, labels, own, error))
        if model in self.learned:
            runs = self.learned[model]
            name = "learned heads (± spread over seeds)"
            points.append(Points(name, labels, runs.mean(0), spread(runs)))
        return points

    def _levels(self, model: str) -> list[Level]:
        return [Level("most frequent token", self.most_frequent[model])]

    def _sides(self, model: str | None) -> str:
        name = self._named(model)
        if name in self.default and name in self.learned:
            sides = "own head above, learned heads below the diagonal"
        else:
            sides = "own head" if name in self.default else "learned heads"
        return f"{name}: agreement on {self._judged_on(name)}, {sides}"


def mlm(
    lens: Models,
    texts: Texts | Any,
    *,
    heads: Iterable[Head] = HEADS,
    subsets: Sequence[str] | None = None,
    masking: Masking | None = None,
    seeds: int | Sequence[int] = 5,
    split: int = 0,
    training: Training | None = None,
    column: str = "text",
    **options: Unpack[Options],
) -> MlmResult:
    """How well tokens are predicted from every subset of the terms of the last hidden state.

    In masked models 15 % of a text's tokens are chosen and hidden, and each is predicted from its
    own state; in causal models nothing is hidden, and as many tokens are predicted from the state
    before them. Special tokens, and those that are unknown to the tokenizer, are never predicted.

    The model's own head is used as the model uses it. A learned head is one linear layer from the
    sum of a subset's terms to the tokens that occur as targets in the training texts: a target that
    does not counts as an error, and ``about.tokens`` counts them. Texts are split 80/10/10 into
    training, validation (when to stop) and test; the same text is never in two of them.

    Parameters
    ----------
    lens
        A model or several: lenses, or names for ``prosect.load``. Models with one tokenizer are
        judged on the same targets.
    texts
        An iterable of strings, the path of a file with a text a line, or a dataset.
    heads
        "default", the model's own, and "learned"; both by default. A model without an output head
        has only the second.
    subsets
        The labels of some subsets, such as ["h", "i+f", "all"]; all 15 by default.
    masking
        How tokens are chosen and hidden; 15 %, of which 80 % are masked and 10 % random, by default.
    seeds
        Of the learned heads, or how many.
    split
        The seed of the split.
    training
        How heads are learned, where not as one linear layer in at most 20 epochs with batches of 64.
    column
        The column of a dataset that has the texts.
    **options
        How to run it: see :class:`~prosect.corpus.runner.Options`. A checkpoint keeps what the
        model made of the texts, so that heads can be learned from it with other seeds, another
        split or training without another pass; with ``heads=["learned"]``, of other subsets too.

    Raises
    ------
    UnsupportedModelError
        If a model has no head that predicts tokens and one is asked for, or its tokenizer no mask.
    ProsectError
        If there is no text, none fits a model, there are too few to learn from, or an argument is
        out of range.
    ReconstructionError
        If the terms of a text do not add up to what the model computed.
    """
    wanted, chosen = _heads(heads), chosen_subsets(subsets, TERMS)
    labels = tuple(label_of(subset, TERMS) for subset in chosen)
    numbers, how = numbered(seeds), Settled.of(training, OWN)
    split, masking = whole_number(split, "split"), Masking() if masking is None else masking
    if not isinstance(masking, Masking):
        raise ProsectError(
            "masking is a prosect.corpus.Masking, such as Masking(share=0.2), "
            f"not {type(masking).__name__}."
        )
    listed = read(texts, column)
    # what is learned from is the same for all subsets, and so are the shards of a checkpoint
    task = Extract(masking, wanted, labels if "default" in wanted else ())
    outcomes = {
        name: run(task, model, listed, **options) for name, model in models_of(lens).items()
    }
    started = time.perf_counter()
    found = {name: Targets.of(outcome.arrays) for name, outcome in outcomes.items()}
    counts, frequent = Counter(), {}
    default, tested, learned = {}, {}, {}
    parts = parted(np.concatenate([one.texts for one in found.values()]), split)
    for name, one in found.items():
        of = f" of {name}" if len(found) > 1 else ""
        counts[f"targets{of}"] = len(one)
        if one.default is not None:
            default[name] = one.scores(one.default[None])
        if "learned" not in wanted:
            frequent[name] = one.share_of(one)
            continue
        train, valid, test = (one[np.isin(one.texts, texts)] for texts in parts)
        if not (len(train) and len(valid) and len(test)):
            raise ProsectError(
                f"{len(train)} training, {len(valid)} validation and {len(test)} test targets: give "
                "more texts, at least one for each, or ask for heads=['default'] alone."
            )
        frequent[name] = test.share_of(train)
        if test.default is not None:
            tested[name] = test.scores(test.default[None])
        mix, bar = indicator(chosen, TERMS), options.get("progress", True)
        learned[name] = test.scores(learn(train, valid, test, mix, numbers, how, bar))
        counts[f"test targets{of}"] = len(test)
        counts[f"test targets of no class{of}"] = int((~np.isin(test.ids, train.ids)).sum())
        counts[f"classes{of}"] = len(np.unique(train.ids))
    asked = {
        "heads": list(wanted),
        "subsets": None if subsets is None else list(subsets),
        "masking": asdict(masking),
        "split": split,
        "training": asdict(how),
    }
    used = numbers if "learned" in wanted else ()
    about = About.of(outcomes, counts, asked, used)
    return MlmResult(
        replace(about, seconds=about.seconds + time.perf_counter() - started),
        {name: list(labels) for name in found},
        objective={
            name: "next token" if one.causal else "masked token" for name, one in found.items()
        },
        default={name: scores.accuracy[0] for name, scores in default.items()},
        default_error={name: scores.error for name, scores in default.items()},
        default_test={name: scores.accuracy[0] for name, scores in tested.items()},
        default_test_error={name: scores.error for name, scores in tested.items()},
        learned={name: scores.accuracy for name, scores in learned.items()},
        learned_error={name: scores.error for name, scores in learned.items()},
        most_frequent=frequent,
        default_agreement={name: scores.agreement for name, scores in default.items()},
        default_test_agreement={name: scores.agreement for name, scores in tested.items()},
        learned_agreement={name: scores.agreement for name, scores in learned.items()},
    )


def _heads(heads: Iterable[Head]) -> tuple[Head, ...]:
    listed = [heads] if isinstance(heads, str) else list(heads)
    unknown = [head for head in listed if head not in HEADS]
    if unknown or not listed:
        named = f"no head {unknown[0]!r}" if unknown else "no head to predict with"
        raise ProsectError(f"There is {named}: choose from {', '.join(HEADS)}.")
    return tuple(head for head in HEADS if head in listed)


@dataclass(frozen=True)
class Scores:
    """How right predictions are: accuracy [seed, subset], error and agreement as in the result."""

    accuracy: np.ndarray
    error: np.ndarray
    agreement: np.ndarray


@dataclass(frozen=True, eq=False)
class Targets:
    """Tokens that one model is to predict.

    Attributes
    ----------
    ids
        Their indices in the vocabulary.
    texts
        A number for the text that each is of, by its content.
    terms
        Of the states that predict them; None where no head is learned.
    default
        What the model's own head predicts; None where it is not asked for.
    causal
        Whether they are next tokens.
    """

    ids: Int[np.ndarray, "target"]
    texts: Int[np.ndarray, "target"]
    terms: Float[np.ndarray, "target term d"] | None
    default: Int[np.ndarray, "subset target"] | None
    causal: bool

    @classmethod
    def of(cls, arrays: Arrays) -> Targets:
        """Those that :class:`Extract` left.

        Raises
        ------
        ProsectError
            If there is none.
        """
        if not len(arrays["ids"]):
            raise ProsectError("No text has a token to predict: give texts of two words or more.")
        default = arrays["default"].T if "default" in arrays else None
        causal = bool(arrays["causal"])
        return cls(arrays["ids"], arrays["texts"], arrays.get("terms"), default, causal)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, chosen: Bool[np.ndarray, "target"]) -> Targets:
        """Some of them."""
        terms = None if self.terms is None else self.terms[chosen]
        default = None if self.default is None else self.default[:, chosen]
        return Targets(self.ids[chosen], self.texts[chosen], terms, default, self.causal)

    def scores(self, found: Int[np.ndarray, "seed subset target"]) -> Scores:
        """How right predictions of them are."""
        right = found == self.ids
        error = standard_error(right.mean(0), self.texts.tolist())
        return Scores(right.mean(-1), error, agreement(found, micro_f1))

    def share_of(self, known: Targets) -> float:
        """The share of the token that is the most frequent among the known ones."""
        ids, counts = np.unique(known.ids, return_counts=True)
        return float((self.ids == ids[counts.argmax()]).mean())


def parted(texts: Int[np.ndarray, "text"], seed: int) -> list[Int[np.ndarray, "part"]]:
    """The different ones among the texts, 80/10/10 for training, validation and test.

    The parts depend on the texts and the seed, and not on the order of the texts; with fewer than
    three texts some are empty.
    """
    different = np.unique(texts)
    order = np.random.default_rng(content(f"split {seed}")).permutation(different)
    held = max(1, round(len(order) / 10))
    return [order[2 * held :], order[held : 2 * held], order[:held]]


def learn(
    train: Targets,
    valid: Targets,
    test: Targets,
    mix: Float[Tensor, "subset term"],
    seeds: Sequence[int],
    how: Settled,
    progress: bool,
) -> Int[np.ndarray, "seed subset target"]:
    """The tokens that heads predict for the test targets, after learning from the training ones.

    Raises
    ------
    ProsectError
        If no validation target occurs among the training ones.
    """
    classes = np.unique(train.ids)
    # what has no class says nothing of when to stop
    valid = valid[np.isin(valid.ids, classes)]

    def examples(targets: Targets) -> Examples:
        assert targets.terms is not None
        terms = np.ascontiguousarray(targets.terms.swapaxes(0, 1))
        labels = np.searchsorted(classes, targets.ids)  # those of the test are not looked at
        return Examples(
            torch.from_numpy(terms).to(how.device), torch.from_numpy(labels).to(how.device)
        )

    found = predictions(
        *(examples(train), examples(valid), examples(test)),
        mix,
        len(classes),
        seeds=seeds,
        how=how,
        progress=progress,
    )
    return classes[found]


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
            items, batch_size=len(items), replacements=[where.replacements for where in chosen]
        )
        terms = torch.cat(
            [
                trace.terms().values[:, -1, where.positions].movedim(1, 0)
                for trace, where in zip(traces, chosen, strict=True)
            ]
        )
        keys = [content(text) for text in items]
        found = {
            "ids": np.array([id for where in chosen for id in where.targets], np.int64),
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

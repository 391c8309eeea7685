"""Predicting tokens from every subset of the terms (Mickus et al. 2022, section 4.1).

The model's own head, which was trained on the sum of all terms, is applied to the sum of a subset's
terms; a learned linear head is trained on the sum of each subset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import Unpack

from prosect.analyses.predictions import logits_of
from prosect.anatomy.vocabulary import TERMS
from prosect.corpus.data.masking import Masker, Masking, content_hash
from prosect.corpus.data.texts import Texts, read
from prosect.corpus.experiments import paper
from prosect.corpus.experiments.by_subset import BySubset, beside_the_paper, spread, triangles
from prosect.corpus.experiments.result import About
from prosect.corpus.experiments.subsets import chosen_subsets, indicator, label_of
from prosect.corpus.running.runner import Options, concatenate, run
from prosect.corpus.running.timing import Stopwatch
from prosect.corpus.running.workers import Models, models_of
from prosect.corpus.statistics.classifier import (
    Examples,
    ResolvedTraining,
    Training,
    predictions,
)
from prosect.corpus.statistics.moments import Arrays
from prosect.corpus.statistics.scores import agreement, micro_f1, seed_numbers, standard_error
from prosect.errors import ProsectError, UnsupportedModelError
from prosect.figures.by_subset import Level, Points
from prosect.lens import Lens
from prosect.modes import plain_arithmetic
from prosect.optional import needs
from prosect.validation import whole_number

if TYPE_CHECKING:
    import pandas as pd

Head = Literal["default", "learned"]
HEADS: tuple[Head, ...] = get_args(Head)
DEFAULT_TRAINING = ResolvedTraining(shape="linear", epochs=20, batch=64)
"""The training of learned heads by default."""


@dataclass(frozen=True, eq=False, repr=False)
class MlmResult(BySubset):
    """The accuracy of token predictions from the sum of the terms of each subset.

    All attributes are by model. A head that was not requested has no entries.

    Attributes
    ----------
    objective
        "masked token" or "next token".
    default, default_error
        [subset], the accuracy of the model's own head on all targets, and the standard error, with
        texts as independent draws.
    default_test, default_test_error
        The same on the targets of the test texts, on which learned heads are evaluated. If there
        are learned heads, figures and comparisons with the paper show these.
    learned
        [seed, subset], the accuracy of the learned heads on the test texts.
    learned_error
        [subset], the standard error of the mean over seeds, with texts as independent draws.
    most_frequent
        The accuracy on the test texts of the most frequent target of the training texts; without
        learned heads, the share of the most frequent target of all texts.
    default_agreement, default_test_agreement, learned_agreement
        [subset, subset], the share of targets for which two subsets predict the same token, correct
        or not; for learned heads, the mean over pairs of seeds
        (:func:`~prosect.corpus.statistics.scores.agreement`). The first is on all targets, the
        others are on the targets of the test texts.
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
        """Return one row per model and subset, with the baseline in the last column.

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
        """Return the agreement of one model's own head (upper triangle) and learned heads (lower).

        Both are on the targets of the test texts. If only one kind of head was requested, it fills
        both triangles; the model's own head alone is evaluated on all targets.
        """
        name = self._model_name(model)
        own = self._own_head("agreement").get(name)
        learned = self.learned_agreement.get(name)
        upper, lower = own if own is not None else learned, learned if learned is not None else own
        assert upper is not None
        assert lower is not None
        return triangles(upper, lower, self.subsets[name])

    def compare(self) -> pd.DataFrame:
        """Return accuracies by head beside those reported of bert-base-uncased.

        The reported values, of f alone, are from third-party slides on the paper. If there are
        learned heads, the model's own head is evaluated on the test targets too.

        Raises
        ------
        ProsectError
            If f alone is not among the subsets.
        """
        labels, runs, reported = {}, {}, {}
        own = {model: accuracy[None] for model, accuracy in self._own_head().items()}
        for head, accuracies in (("default", own), ("learned", self.learned)):
            for model, accuracy in accuracies.items():
                name = f"{model}, {head} head"
                labels[name], runs[name] = self.subsets[model], accuracy
                reported[f"{paper.MODEL} (paper), {head} head"] = paper.MLM[head]
        return beside_the_paper(labels, runs, reported)

    def _own_head(
        self, quantity: Literal["error", "agreement"] | None = None
    ) -> dict[str, np.ndarray]:
        """The own head's accuracy or other quantity, on test targets if there are learned heads."""
        name = "default_test" if self.learned else "default"
        return getattr(self, name if quantity is None else f"{name}_{quantity}")

    def _target_count(self, model: str) -> str:
        """The number and kind of the targets that the figures show."""
        kind = "test targets" if model in self.learned else "targets"
        suffix = f" of {model}" if len(self.subsets) > 1 else ""
        return f"{self.about.tokens[kind + suffix]:,} {kind}"

    def _title(self, model: str) -> str:
        return f"{model}, {self._target_count(model)}"

    def _points(self, model: str) -> list[Points]:
        labels, points = self.subsets[model], []
        if model in self.default:
            name = "the model's own head (± standard error)"
            own, error = self._own_head()[model], self._own_head("error")[model]
            points.append(Points(name, labels, own, error))
        if model in self.learned:
            runs = self.learned[model]
            name = "learned heads (± spread over seeds)"
            points.append(Points(name, labels, runs.mean(0), spread(runs)))
        return points

    def _levels(self, model: str) -> list[Level]:
        return [Level("most frequent token", self.most_frequent[model])]

    def _agreement_title(self, model: str | None) -> str:
        name = self._model_name(model)
        if name in self.default and name in self.learned:
            sides = "own head above, learned heads below the diagonal"
        else:
            sides = "own head" if name in self.default else "learned heads"
        return f"{name}: agreement on {self._target_count(name)}, {sides}"


@plain_arithmetic()
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
    """Predict tokens from every subset of the terms of the last hidden state.

    In masked models 15 % of the tokens of a text are chosen and masked, and each is predicted from
    its own state. In causal models nothing is masked, and as many tokens are predicted from the
    state before them. Special and unknown tokens are never predicted.

    The model's own head is applied as in the model. A learned head is one linear layer from the sum
    of a subset's terms to the tokens that are targets in the training texts. A test target that is
    not among them counts as an error; ``about.tokens`` gives their number. Texts are split 80/10/10
    into training, validation (for early stopping) and test; copies of a text are in one part.

    Parameters
    ----------
    lens
        One model or several: lenses, or names for ``prosect.load``. Models with the same tokenizer
        have the same targets.
    texts
        An iterable of strings, the path of a file with one text per line, or a dataset.
    heads
        "default", the model's own head, and "learned"; both by default. A model without an output
        head supports only "learned".
    subsets
        Labels of subsets, such as ["h", "i+f", "all"]; all 15 by default.
    masking
        How targets are chosen and masked; by default 15 %, of which 80 % are replaced by the mask
        token and 10 % by a random token.
    seeds
        The seeds of the learned heads, or their number.
    split
        The seed of the split.
    training
        Options of the learned heads; by default one linear layer, 20 epochs, batches of 64.
    column
        The column of a dataset that holds the texts.
    **options
        How to run the experiment: see :class:`~prosect.corpus.Options`. A checkpoint stores the
        terms of the targets, so that heads can be learned again with other seeds, another split or
        other training without another pass; with ``heads=["learned"]``, for other subsets too.

    Raises
    ------
    UnsupportedModelError
        If "default" is requested of a model without a head that predicts tokens, or the tokenizer
        has no mask token.
    ProsectError
        If there is no text, no text fits a model, there are too few texts to learn from, or an
        argument is out of range.
    ReconstructionError
        If the terms of a text do not add up to the model's hidden states.
    """
    requested, chosen = _checked_heads(heads), chosen_subsets(subsets, TERMS)
    labels = tuple(label_of(subset, TERMS) for subset in chosen)
    numbers, how = seed_numbers(seeds), ResolvedTraining.of(training, DEFAULT_TRAINING)
    split, masking = whole_number(split, "split"), Masking() if masking is None else masking
    if not isinstance(masking, Masking):
        raise ProsectError(
            "masking must be a prosect.corpus.Masking, such as Masking(share=0.2), "
            f"got {type(masking).__name__}."
        )
    strings = read(texts, column)
    # learned heads use the same targets for all subsets, and so the same shards of a checkpoint
    task = TargetTerms(masking, requested, labels if "default" in requested else ())
    outcomes = {
        name: run(task, model, strings, **options) for name, model in models_of(lens).items()
    }
    clock = Stopwatch()
    targets = {name: Targets.of(outcome.arrays) for name, outcome in outcomes.items()}
    parts = split_texts(np.concatenate([own.texts for own in targets.values()]), split)
    counts, most_frequent = Counter(), {}
    default, default_test, learned = {}, {}, {}
    for name, own in targets.items():
        suffix = f" of {name}" if len(targets) > 1 else ""
        counts[f"targets{suffix}"] = len(own)
        if own.default is not None:
            default[name] = own.evaluate(own.default[None])
        if "learned" not in requested:
            most_frequent[name] = own.share_of_most_frequent(own)
            continue
        train, valid, test = (own[np.isin(own.texts, part)] for part in parts)
        if not (len(train) and len(valid) and len(test)):
            raise ProsectError(
                "Learned heads need training, validation and test targets, "
                f"got {len(train)}, {len(valid)} and {len(test)}: "
                "give more texts, or use heads=['default']."
            )
        most_frequent[name] = test.share_of_most_frequent(train)
        if test.default is not None:
            default_test[name] = test.evaluate(test.default[None])
        mix, progress = indicator(chosen, TERMS), options.get("progress", True)
        learned[name] = test.evaluate(
            learned_predictions(train, valid, test, mix, numbers, how, progress)
        )
        counts[f"test targets{suffix}"] = len(test)
        counts[f"test targets of no class{suffix}"] = int((~np.isin(test.ids, train.ids)).sum())
        counts[f"classes{suffix}"] = len(np.unique(train.ids))
    settings = {
        "heads": list(requested),
        "subsets": None if subsets is None else list(subsets),
        "masking": asdict(masking),
        "split": split,
        "training": asdict(how),
    }
    used_seeds = numbers if "learned" in requested else ()
    return MlmResult(
        About.of(outcomes, counts, settings, used_seeds, after_runs=clock),
        {name: list(labels) for name in targets},
        objective={
            name: "next token" if own.causal else "masked token" for name, own in targets.items()
        },
        default={name: own.accuracy[0] for name, own in default.items()},
        default_error={name: own.error for name, own in default.items()},
        default_test={name: own.accuracy[0] for name, own in default_test.items()},
        default_test_error={name: own.error for name, own in default_test.items()},
        learned={name: own.accuracy for name, own in learned.items()},
        learned_error={name: own.error for name, own in learned.items()},
        most_frequent=most_frequent,
        default_agreement={name: own.agreement for name, own in default.items()},
        default_test_agreement={name: own.agreement for name, own in default_test.items()},
        learned_agreement={name: own.agreement for name, own in learned.items()},
    )


def _checked_heads(heads: Iterable[Head]) -> tuple[Head, ...]:
    names = [heads] if isinstance(heads, str) else list(heads)
    if not names or any(name not in HEADS for name in names):
        raise ProsectError(f"heads must contain one or both of {', '.join(HEADS)}, got {names!r}.")
    return tuple(head for head in HEADS if head in names)


@dataclass(frozen=True)
class Evaluation:
    """Accuracy [seed, subset], standard error and agreement of predictions, as in the result."""

    accuracy: np.ndarray
    error: np.ndarray
    agreement: np.ndarray


@dataclass(frozen=True, eq=False)
class Targets:
    """The tokens that one model is to predict.

    Attributes
    ----------
    ids
        Their vocabulary ids.
    texts
        The hash of the text of each.
    terms
        The terms of the states that predict them; None if no head is learned.
    default
        The predictions of the model's own head; None if it is not requested.
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
        """Convert the result of :class:`TargetTerms`.

        Raises
        ------
        ProsectError
            If there is no target.
        """
        if not len(arrays["ids"]):
            raise ProsectError("No text has a token to predict: give texts of two or more words.")
        default = arrays["default"].T if "default" in arrays else None
        causal = bool(arrays["causal"])
        return cls(arrays["ids"], arrays["texts"], arrays.get("terms"), default, causal)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, selection: Bool[np.ndarray, "target"]) -> Targets:
        """Select targets."""
        terms = None if self.terms is None else self.terms[selection]
        default = None if self.default is None else self.default[:, selection]
        return Targets(self.ids[selection], self.texts[selection], terms, default, self.causal)

    def evaluate(self, predictions: Int[np.ndarray, "seed subset target"]) -> Evaluation:
        """Evaluate predictions of the targets."""
        correct = predictions == self.ids
        error = standard_error(correct.mean(0), self.texts.tolist())
        return Evaluation(correct.mean(-1), error, agreement(predictions, micro_f1))

    def share_of_most_frequent(self, training: Targets) -> float:
        """The share of targets that are the most frequent training target."""
        ids, counts = np.unique(training.ids, return_counts=True)
        return float((self.ids == ids[counts.argmax()]).mean())


def split_texts(texts: Int[np.ndarray, "text"], seed: int) -> list[Int[np.ndarray, "part"]]:
    """Split the distinct texts 80/10/10 into training, validation and test.

    The split depends on the set of texts and the seed, not on the order of the texts. With fewer
    than three texts some parts are empty.
    """
    distinct = np.unique(texts)
    order = np.random.default_rng(content_hash(f"split {seed}")).permutation(distinct)
    tenth = max(1, round(len(order) / 10))
    return [order[2 * tenth :], order[tenth : 2 * tenth], order[:tenth]]


def learned_predictions(
    train: Targets,
    valid: Targets,
    test: Targets,
    mix: Float[Tensor, "subset term"],
    seeds: Sequence[int],
    how: ResolvedTraining,
    progress: bool,
) -> Int[np.ndarray, "seed subset target"]:
    """Train heads and predict the test targets.

    Raises
    ------
    ProsectError
        If no validation target occurs among the training targets.
    """
    classes = np.unique(train.ids)
    # Exclude unknown classes from early stopping.
    valid = valid[np.isin(valid.ids, classes)]

    def examples(targets: Targets) -> Examples:
        assert targets.terms is not None
        terms = np.ascontiguousarray(targets.terms.swapaxes(0, 1))
        labels = np.searchsorted(classes, targets.ids)  # labels of test examples are not used
        return Examples(
            torch.from_numpy(terms).to(how.device), torch.from_numpy(labels).to(how.device)
        )

    class_indices = predictions(
        *(examples(train), examples(valid), examples(test)),
        mix,
        len(classes),
        seeds=seeds,
        training=how,
        progress=progress,
    )
    return classes[class_indices]


@dataclass(frozen=True)
class TargetTerms:
    """The targets of texts, the terms of the states that predict them, and the head's predictions."""

    masking: Masking
    heads: tuple[Head, ...]
    subsets: tuple[str, ...]

    name: ClassVar[str] = "mlm"

    def measure(self, lens: Lens, items: Sequence[str]) -> Arrays:
        """Compute the targets of a batch, their terms [target, term, d] and text hashes.

        "default" [target, subset] is the prediction of the model's own head.
        """
        masker = Masker(lens, self.masking)
        masked = [masker(text) for text in items]
        traces = lens.traces(
            items, batch_size=len(items), replacements=[text.replacements for text in masked]
        )
        terms = torch.cat(
            [
                trace.terms().values[:, -1, text.positions].movedim(1, 0)
                for trace, text in zip(traces, masked, strict=True)
            ]
        )
        hashes = np.array([content_hash(text) for text in items], np.uint64)
        arrays = {
            "ids": np.array([id for text in masked for id in text.targets], np.int64),
            "texts": np.repeat(hashes, [len(text.targets) for text in masked]),
            "causal": np.bool_(lens.anatomy.causal),
        }
        if "learned" in self.heads:
            arrays["terms"] = terms.to("cpu", torch.float32).numpy()
        if "default" in self.heads:
            arrays["default"] = self._own_head_predictions(lens, terms).cpu().numpy()
        return arrays

    def merge(self, first: Arrays, second: Arrays) -> Arrays:
        """Concatenate the targets of two ranges of texts."""
        causal = {"causal": first["causal"]}
        return {**concatenate(_without_causal(first), _without_causal(second)), **causal}

    def _own_head_predictions(
        self, lens: Lens, terms: Float[Tensor, "target term d"]
    ) -> Int[Tensor, "target subset"]:
        if lens.decoder is not None:
            raise UnsupportedModelError(
                f"The head of {lens.name} reads the states of the decoder, not of the encoder: "
                "use heads=['learned']."
            )
        mix = indicator(chosen_subsets(self.subsets, TERMS), TERMS).to(terms)
        sums = torch.einsum("st,ntd->nsd", mix, terms)
        try:
            best = [x.argmax(-1) for x in logits_of(lens.model, lens.anatomy, sums.flatten(0, 1))]
        except UnsupportedModelError as error:
            sentence = str(error).removesuffix(".")
            raise UnsupportedModelError(f"{sentence}, or use heads=['learned'].") from error
        return torch.cat(best).unflatten(0, sums.shape[:2])


def _without_causal(arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if name != "causal"}

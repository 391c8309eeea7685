"""How well a linear map approximates every feed-forward, and where it fails (Mickus et al. 2022)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from typing_extensions import Unpack

from prosect.corpus.data.texts import (
    NumberedText,
    Texts,
    hash_fraction,
    number_texts,
    read,
    selected_positions,
    text_of,
)
from prosect.corpus.experiments import paper
from prosect.corpus.experiments.result import About, Result
from prosect.corpus.running.runner import Options, Outcome, run
from prosect.corpus.running.workers import Models, models_of
from prosect.corpus.statistics.largest import keep_largest_of_each_key, largest_indices
from prosect.corpus.statistics.moments import Arrays, CrossProducts, Moments
from prosect.corpus.statistics.regression import LinearMap
from prosect.errors import ProsectError
from prosect.figures.by_layer import Line, by_layer, by_layer_for_papers
from prosect.lens import Lens
from prosect.modes import plain_arithmetic
from prosect.optional import needs
from prosect.trace import Trace
from prosect.validation import check_flag, check_share, whole_number

if TYPE_CHECKING:
    import pandas as pd
    from bqplot.figure import Figure as BqplotFigure
    from matplotlib.figure import Figure

AXIS = "R² of a linear feed-forward"
MIN_DEVIATION = 1e-6
"""Prediction errors below this number of standard deviations are not reported."""
SNIPPET_MARGIN = 32
"""The number of characters shown on each side of a token."""


@dataclass(frozen=True, eq=False, repr=False)
class LinearFFResult(Result):
    """R² of the best linear approximation of each feed-forward, by layer.

    Attributes
    ----------
    in_sample
        By model, [layer, dimension], R² on all texts of a map fitted to all texts, as in the paper.
        NaN for constant output dimensions, which are excluded from means.
    held_out
        By model, the same on the held-out texts of a map fitted to the other texts.
    in_sample_error, held_out_error
        By model, [layer], the standard error of the mean over dimensions, with texts as independent
        draws; the fit of the ``held_out`` map is taken as given. NaN without the second pass.
    rank
        By model, [layer], the rank of the inputs. In-sample R² is informative only if there are
        many more tokens than that; with fewer it is 1.
    worst
        By model, columns: the largest errors of the ``in_sample`` map, sorted within each layer.
    """

    in_sample: dict[str, np.ndarray]
    held_out: dict[str, np.ndarray]
    in_sample_error: dict[str, np.ndarray]
    held_out_error: dict[str, np.ndarray]
    rank: dict[str, np.ndarray]
    worst: dict[str, dict[str, np.ndarray]]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per model and layer, from 1.

        The columns are R² in-sample and held-out, each with its standard error and its spread over
        output dimensions, the number of excluded dimensions, and the rank of the inputs.
        """
        pandas = needs("pandas")
        tables = []
        for model, in_sample in self.in_sample.items():
            held_out = self.held_out[model]
            table = {
                "model": model,
                "layer": np.arange(1, len(in_sample) + 1),
                "in_sample": _mean(in_sample),
                "in_sample_error": self.in_sample_error[model],
                "in_sample_spread": _spread(in_sample),
                "held_out": _mean(held_out),
                "held_out_error": self.held_out_error[model],
                "held_out_spread": _spread(held_out),
                "left_out": np.isnan(in_sample).sum(-1),
                "rank": self.rank[model],
            }
            tables.append(pandas.DataFrame(table))
        return pandas.concat(tables, ignore_index=True)

    def failures(self) -> pd.DataFrame:
        """Return the largest errors of the linear maps, one row per token and output dimension.

        Each vocabulary entry occurs at most once per dimension, with its largest error. ``text`` is
        the index among the non-empty texts, from 0, ``position`` the token's in the text, ``value``
        the model's output in the ``dimension``, ``prediction`` that of the linear map, and
        ``deviations`` their difference in standard deviations of the dimension.
        """
        pandas = needs("pandas")
        tables = [
            pandas.DataFrame({"model": model, **columns}) for model, columns in self.worst.items()
        ]
        return pandas.concat(tables, ignore_index=True)

    def compare(self) -> pd.DataFrame:
        """Return in-sample R² by layer, from 1, beside the paper's of bert-base-uncased."""
        pandas = needs("pandas")
        columns = {model: _mean(values) for model, values in self.in_sample.items()}
        columns[f"{paper.MODEL} (paper)"] = paper.LINEAR_FF
        series = {
            name: pandas.Series(values, np.arange(1, len(values) + 1))
            for name, values in columns.items()
        }
        return pandas.DataFrame(series).rename_axis("layer")

    def plot(self) -> BqplotFigure:
        """Draw R² by layer, in-sample and held-out, of the first model (bqplot)."""
        model = next(iter(self.in_sample))
        return by_layer(self._lines(model), AXIS, model)

    def figure(self) -> Figure:
        """Draw R² by layer, one panel per model; bands are ± two standard errors (matplotlib)."""
        return by_layer_for_papers({model: self._lines(model) for model in self.in_sample}, AXIS)

    def _lines(self, model: str) -> list[Line]:
        curves = {
            "in-sample": (self.in_sample, self.in_sample_error),
            "held-out": (self.held_out, self.held_out_error),
        }
        lines = [
            Line(name, _mean(values[model]), 2 * errors[model], first=1)
            for name, (values, errors) in curves.items()
        ]
        # a curve of NaN, as without held-out texts, would only add a legend entry
        return [line for line in lines if not np.isnan(line.mean).all()] or lines[:1]


def _mean(values: np.ndarray) -> np.ndarray:
    """The mean over the last axis without NaN; NaN if all are."""
    valid = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(valid, values, 0).sum(-1) / valid.sum(-1)


def _spread(values: np.ndarray) -> np.ndarray:
    """The standard deviation over the last axis without NaN."""
    count = (~np.isnan(values)).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(_mean(np.square(values - _mean(values)[..., None])) * count / (count - 1))


@plain_arithmetic()
def linear_ff(
    lens: Models,
    texts: Texts | Any,
    *,
    special: bool = True,
    held_out: float = 0.2,
    seed: int = 0,
    worst: int = 10,
    column: str = "text",
    **options: Unpack[Options],
) -> LinearFFResult:
    """Compute R² of the best linear map from the input of each feed-forward to its output.

    The input is that of the first matrix (after the norm, in a pre-norm model). The output includes
    the bias, before any norm of its own and before the residual connection. The map is fitted by
    ordinary least squares with an intercept; R² is the mean over output dimensions. The paper first
    standardises both sides per dimension, which does not change R². If several maps fit equally
    well, the one of least norm for standardised inputs is used, which affects held-out texts only.

    Only cross-products are stored: 16 d² bytes per layer for the fitted and for the held-out texts,
    a few copies of them while shards are merged.

    Parameters
    ----------
    lens
        One model or several: lenses, or names for ``prosect.load``. Of an encoder-decoder model,
        the encoder is used.
    texts
        An iterable of strings, the path of a file with one text per line, or a dataset.
    special
        Whether special tokens, such as [CLS], are included.
    held_out
        The share of the texts that are held out. The choice depends on the seed and on the content
        of a text, so that copies of a text are on the same side.
    seed
        The seed of that choice.
    worst
        The number of largest errors reported for each layer. They and the standard errors need a
        second pass over the texts, which 0 omits.
    column
        The column of a dataset that holds the texts.
    **options
        How to run the experiment: see :class:`~prosect.corpus.Options`.

    Raises
    ------
    ProsectError
        If a setting is out of range, there is no text, or no text fits a model.

    Warns
    -----
    UserWarning
        If there are so few tokens that a linear map fits any output, or no text is held out.
    """
    check_flag(special, "special")
    check_share(held_out, "held_out", below_one=True)
    seed, worst = whole_number(seed, "seed"), whole_number(worst, "worst")
    if worst < 0:
        raise ProsectError(f"worst must be at least 0, got {worst}.")
    items = number_texts(read(texts, column))
    products = FeedForwardProducts(special, float(held_out), seed)
    outcomes: dict[str, Outcome] = {}
    fits: dict[str, LinearFits] = {}
    errors: dict[str, Arrays] = {}
    for name, model in models_of(lens).items():
        outcome = run(products, model, items, text_of, **options)
        fits[name] = LinearFits.of(outcome.arrays)
        if worst:
            second = run(
                LinearErrors(products, fits[name], worst), model, items, text_of, **options
            )
            errors[name] = second.arrays
            outcome = replace(outcome, seconds=outcome.seconds + second.seconds)
        outcomes[name] = outcome
    counts = {name: _token_counts(outcome.arrays) for name, outcome in outcomes.items()}
    for name, own in fits.items():
        _warn_of_few_texts(name, own, counts[name], held_out)
    settings = {"special": special, "held_out": float(held_out), "worst": worst}
    return LinearFFResult(
        About.of(outcomes, max(counts.values(), key=lambda c: c["tokens"]), settings, (seed,)),
        in_sample={name: own.in_sample.r_squared for name, own in fits.items()},
        held_out={name: own.held_out.r_squared for name, own in fits.items()},
        in_sample_error=_standard_errors(fits, errors, "in_sample"),
        held_out_error=_standard_errors(fits, errors, "held_out"),
        rank={name: own.in_sample.map.rank for name, own in fits.items()},
        worst={name: _columns(errors.get(name), items) for name in fits},
    )


def _warn_of_few_texts(
    model: str, fits: LinearFits, counts: Mapping[str, int], held_out: float
) -> None:
    """Warn if there are too few texts for R² to be informative."""
    tokens, rank = counts["tokens"], int(fits.in_sample.map.rank.max())
    if rank >= tokens - 1:
        warnings.warn(
            f"{model}: in-sample R² is not informative, as a linear map fits any output of "
            f"{tokens} tokens whose inputs have rank {rank}: give more texts.",
            stacklevel=3,
        )
    if held_out and not counts["of them held out"]:
        warnings.warn(f"{model}: no text is held out, so held-out R² is NaN.", stacklevel=3)


def _token_counts(arrays: Arrays) -> dict[str, int]:
    counts = {name: int(arrays[f"{name}/count"]) for name in ("fitted", "held_out")}
    return {"tokens": sum(counts.values()), "of them held out": counts["held_out"]}


def _standard_errors(
    fits: Mapping[str, LinearFits], errors: Mapping[str, Arrays], part: str
) -> dict[str, np.ndarray]:
    """The standard error of the mean R², [layer], from the influence of each text on it."""
    standard_errors = {}
    for name, own in fits.items():
        standard_errors[name] = np.full(len(own.in_sample.map.rank), np.nan)
        if name in errors:
            influence = Moments.unpack(errors[name], part)
            standard_errors[name] = np.sqrt(influence.count) * influence.spread
    return standard_errors


_COLUMNS = (
    *("layer", "token", "text", "position", "dimension"),
    *("value", "prediction", "deviations", "snippet"),
)


def _columns(arrays: Arrays | None, items: Sequence[NumberedText]) -> dict[str, np.ndarray]:
    """The largest errors as columns, layer by layer."""
    if arrays is None:
        return {name: np.zeros(0) for name in _COLUMNS}
    size = arrays["size"]
    reported = size >= 0  # entries that are not errors have a negative size
    flat = {name: array[reported] for name, array in arrays.items() if array.shape == size.shape}
    spans = zip(*(flat[name].tolist() for name in ("text", "start", "end")), strict=True)
    difference = flat["value"] - flat["prediction"]
    columns = {
        **flat,
        "layer": np.nonzero(reported)[0] + 1,
        "deviations": np.sqrt(flat["size"]) * np.sign(difference),
        "snippet": np.array([_snippet(items[i].text, start, end) for i, start, end in spans]),
    }
    return {name: columns[name] for name in _COLUMNS}


def _snippet(text: str, start: int, end: int) -> str:
    """The text around a token in brackets; the beginning of the text if its span is unknown."""
    if start < 0:
        return text[: 2 * SNIPPET_MARGIN] + "…" * (len(text) > 2 * SNIPPET_MARGIN)
    before, after = text[max(0, start - SNIPPET_MARGIN) : start], text[end : end + SNIPPET_MARGIN]
    opening, closing = "…" * (start > SNIPPET_MARGIN), "…" * (len(text) > end + SNIPPET_MARGIN)
    return f"{opening}{before}⟦{text[start:end]}⟧{after}{closing}"


@dataclass(frozen=True)
class LinearFit:
    """A linear map and its fit to some pairs of inputs and outputs.

    Attributes
    ----------
    map
        The map, fitted to these pairs or to others.
    mean, squares
        [layer, dimension], the mean of the outputs and their sum of squares around it.
    r_squared
        [layer, dimension].
    count
        The number of pairs.
    """

    map: LinearMap
    mean: np.ndarray
    squares: np.ndarray
    r_squared: np.ndarray
    count: float

    @classmethod
    def of(cls, linear_map: LinearMap, cross: CrossProducts) -> LinearFit:
        """Evaluate a map on pairs, given by their cross-products."""
        return cls(linear_map, cross.mean_y, cross.yy, linear_map.r_squared(cross), cross.count)

    def influence(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """[layer], the influence of one text's pairs, [layer, n, d], on R², mean over dimensions.

        To first order in R² = 1 − Σ residual² / Σ squares, a text contributes its own squares times
        (1 − R²) minus its residuals, divided by all squares. The dependence of the map on the text
        has no effect to this order, since the map minimises the residuals. The influences of all
        texts sum to 0.
        """
        residuals = np.square(y - self.map(x)).sum(1)
        squares = np.square(y - self.mean[:, None]).sum(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return _mean(((1 - self.r_squared) * squares - residuals) / self.squares)

    def squared_deviations(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The squared prediction errors in units of the output's variance, and the predictions.

        −1 for constant outputs, and for errors within rounding. The float32 result makes equal
        vectors have equal errors although their batches differ in the last digits.
        """
        predictions = self.map(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.square(y - predictions) * (self.count / self.squares)[:, None]
        excluded = np.isnan(self.r_squared)[:, None] | (size < MIN_DEVIATION**2)
        return np.where(excluded, -1.0, size).astype(np.float32), predictions


@dataclass(frozen=True)
class LinearFits:
    """The map of all texts evaluated on all, and that of the fitted texts on the held-out ones."""

    in_sample: LinearFit
    held_out: LinearFit

    @classmethod
    def of(cls, arrays: Arrays) -> LinearFits:
        """Fit the maps to the cross-products of both parts of the texts."""
        fitted, held_out = (CrossProducts.unpack(arrays, part) for part in ("fitted", "held_out"))
        whole = fitted.merge(held_out)
        return cls(
            LinearFit.of(LinearMap.fit(whole), whole),
            LinearFit.of(LinearMap.fit(fitted), held_out),
        )


@dataclass(frozen=True)
class FeedForwardProducts:
    """The cross-products of inputs and outputs of all feed-forwards, for both parts of the texts."""

    special: bool
    held_out: float
    seed: int

    name: ClassVar[str] = "linear_ff"

    def is_held_out(self, text: str) -> bool:
        """Whether a text is held out."""
        return hash_fraction(text, self.seed) < self.held_out

    def measure(self, lens: Lens, items: Sequence[NumberedText]) -> Arrays:
        """Compute the cross-products of a batch."""
        pairs = [feed_forward_pairs(trace, self.special) for trace in _traces(lens, items)]
        held_out = np.repeat(
            [self.is_held_out(item.text) for item in items], [x.shape[1] for x, _ in pairs]
        )
        x, y = (np.concatenate(side, 1) for side in zip(*pairs, strict=True))
        return {
            **CrossProducts.of(x[:, ~held_out], y[:, ~held_out]).pack("fitted"),
            **CrossProducts.of(x[:, held_out], y[:, held_out]).pack("held_out"),
        }

    def merge(self, first: Arrays, second: Arrays) -> Arrays:
        """Merge the cross-products of two ranges of texts."""
        fitted, held_out = (
            CrossProducts.unpack(first, part).merge(CrossProducts.unpack(second, part)).pack(part)
            for part in ("fitted", "held_out")
        )
        return {**fitted, **held_out}


@dataclass(frozen=True)
class LinearErrors:
    """The largest errors of the linear maps, and the influence of each text on R²."""

    products: FeedForwardProducts
    fits: LinearFits
    worst: int

    name: ClassVar[str] = "linear_ff_failures"

    def measure(self, lens: Lens, items: Sequence[NumberedText]) -> Arrays:
        """Compute errors and influences of a batch."""
        traces = list(_traces(lens, items))
        pairs = [feed_forward_pairs(trace, self.products.special) for trace in traces]
        in_sample = [self.fits.in_sample.influence(x, y) for x, y in pairs]
        held_out = [
            self.fits.held_out.influence(x, y)
            for (x, y), item in zip(pairs, items, strict=True)
            if self.products.is_held_out(item.text)
        ]
        layers = len(in_sample[0])
        return {
            **Moments.of(np.reshape(in_sample, (-1, layers))).pack("in_sample"),
            **Moments.of(np.reshape(held_out, (-1, layers))).pack("held_out"),
            **self._largest_errors(traces, pairs, [item.number for item in items]),
        }

    def _largest_errors(
        self,
        traces: Sequence[Trace],
        pairs: Sequence[tuple[np.ndarray, np.ndarray]],
        numbers: Sequence[int],
    ) -> Arrays:
        """The largest errors of a batch, [layer, worst], in descending order."""
        x, y = (np.concatenate(side, 1) for side in zip(*pairs, strict=True))
        size, predictions = self.fits.in_sample.squared_deviations(x, y)
        tokens = [
            (number, i, trace.tokens[i])
            for number, trace in zip(numbers, traces, strict=True)
            for i in selected_positions(trace.tokens, self.products.special)
        ]
        rows = [(token.id, number, i, *(token.span or (-1, -1))) for number, i, token in tokens]
        labels = np.array([token.label for *_, token in tokens], str)
        columns = dict(
            zip(
                _TOKEN_COLUMNS,
                np.reshape(rows, (-1, len(_TOKEN_COLUMNS))).T.astype(int),
                strict=True,
            )
        )
        # the largest error of each vocabulary entry in each dimension
        order = np.argsort(columns["id"], kind="stable")
        starts = np.flatnonzero(np.diff(columns["id"][order], prepend=-1))
        largest = np.maximum.reduceat(size[:, order], starts, axis=1)
        layers, _, dimensions = largest.shape
        best = largest_indices(largest.reshape(layers, -1), self.worst)
        entry, dimension = np.divmod(best, dimensions)
        layer = np.arange(layers)[:, None]
        same_entry = columns["id"] == columns["id"][order][starts][entry][..., None]
        candidates = np.where(same_entry, size[layer, :, dimension], -2)
        # a batch may have no included token
        token = candidates.argmax(-1) if candidates.size else best
        return {
            "size": size[layer, token, dimension],
            "dimension": dimension,
            "value": y[layer, token, dimension],
            "prediction": predictions[layer, token, dimension],
            "token": labels[token],
            **{name: column[token] for name, column in columns.items()},
        }

    def merge(self, first: Arrays, second: Arrays) -> Arrays:
        """Merge errors and influences of two ranges of texts."""
        moments = [
            Moments.unpack(first, part).merge(Moments.unpack(second, part)).pack(part)
            for part in ("in_sample", "held_out")
        ]
        columns = {
            name: np.concatenate([first[name], second[name]], 1)
            for name in ("size", "dimension", "value", "prediction", "token", *_TOKEN_COLUMNS)
        }
        width = self.fits.in_sample.squares.shape[1]
        keys = columns["id"] * width + columns["dimension"]
        columns["size"] = keep_largest_of_each_key(columns["size"], keys)
        best = largest_indices(columns["size"], self.worst)
        return {
            **moments[0],
            **moments[1],
            **{name: np.take_along_axis(array, best, 1) for name, array in columns.items()},
        }


_TOKEN_COLUMNS = ("id", "text", "position", "start", "end")


def _traces(lens: Lens, items: Sequence[NumberedText]) -> Iterator[Trace]:
    return lens.traces([item.text for item in items], batch_size=len(items))


def feed_forward_pairs(trace: Trace, special: bool) -> tuple[np.ndarray, np.ndarray]:
    """The inputs and outputs of every feed-forward of a trace, each [layer, token, d], in float64."""
    tokens = selected_positions(trace.tokens, special)
    pairs = [
        (record.read[tokens], record.output[tokens]) for record in trace.run.stream.feed_forwards
    ]
    x, y = (torch.stack(side).double().cpu().numpy() for side in zip(*pairs, strict=True))
    return x, y

"""How close every feed-forward comes to a linear map (Mickus et al. 2022), and where it does not."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from typing_extensions import Unpack

from prosect.corpus.data.texts import Numbered, Texts, counted, lot, numbered, read, text_of
from prosect.corpus.experiments import paper
from prosect.corpus.experiments.result import About, Result
from prosect.corpus.running.runner import Options, Outcome, run
from prosect.corpus.running.workers import Models, models_of
from prosect.corpus.statistics.moments import Arrays, Cross, Moments, largest, once
from prosect.corpus.statistics.regression import LinearMap
from prosect.errors import ProsectError
from prosect.figures.by_layer import Line, by_layer, by_layer_for_papers
from prosect.lens import Lens
from prosect.trace import Trace
from prosect.validation import check_flag, check_share, whole_number

if TYPE_CHECKING:
    import pandas as pd
    from bqplot.figure import Figure as BqplotFigure
    from matplotlib.figure import Figure

AXIS = "R² of a linear feed-forward"
EXACT = 1e-6
"""A prediction that is off by less of a standard deviation is no failure."""
AROUND = 32
"""How many characters to each side of a token are shown."""


@dataclass(frozen=True, eq=False, repr=False)
class LinearFFResult(Result):
    """R² of the best linear map in the place of each feed-forward, by layer.

    Attributes
    ----------
    in_sample
        By model, [layer, dimension], of a map fitted to all texts, on all texts: as in the paper.
        NaN for output dimensions that do not vary, which are left out of means.
    held_out
        By model, the same on the texts that were held out, of a map fitted to the others.
    in_sample_error, held_out_error
        By model, [layer], the standard error of the mean over dimensions, with texts as the
        independent draws; the map of ``held_out`` counts as given. NaN without the second pass.
    rank
        By model, [layer], in how many directions the inputs vary. R² in-sample says little unless
        there are many more tokens than that: with fewer it is 1.
    worst
        By model, columns: where the map of ``in_sample`` fails most, the worst of each layer first.
    """

    in_sample: dict[str, np.ndarray]
    held_out: dict[str, np.ndarray]
    in_sample_error: dict[str, np.ndarray]
    held_out_error: dict[str, np.ndarray]
    rank: dict[str, np.ndarray]
    worst: dict[str, dict[str, np.ndarray]]

    def to_frame(self) -> pd.DataFrame:
        """A row for each model and layer, from 1.

        R² in-sample and held-out, each with standard error and with its spread over output
        dimensions; how many of these were left out; the rank of the inputs.
        """
        import pandas as pd

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
            tables.append(pd.DataFrame(table))
        return pd.concat(tables, ignore_index=True)

    def failures(self) -> pd.DataFrame:
        """Where the linear maps fail most: a row for each output of a token that is among the worst.

        Each token of the vocabulary is named once for a dimension, where it is worst. ``text`` is the
        text's number among those that are not empty, from 0, ``position`` the token's in it,
        ``value`` what the model computed in the ``dimension``, ``prediction`` what the linear map
        says, and ``deviations`` their distance in standard deviations of the dimension.
        """
        import pandas as pd

        tables = [
            pd.DataFrame({"model": model, **columns}) for model, columns in self.worst.items()
        ]
        return pd.concat(tables, ignore_index=True)

    def compare(self) -> pd.DataFrame:
        """R² in-sample by layer, from 1, beside the paper's, which is of bert-base-uncased."""
        import pandas as pd

        columns = {model: _mean(found) for model, found in self.in_sample.items()}
        columns[f"{paper.MODEL} (paper)"] = paper.LINEAR_FF
        series = {
            name: pd.Series(found, np.arange(1, len(found) + 1)) for name, found in columns.items()
        }
        return pd.DataFrame(series).rename_axis("layer")

    def plot(self) -> BqplotFigure:
        """R² by layer, in-sample and held-out, of the first model (bqplot)."""
        model = next(iter(self.in_sample))
        return by_layer(self._lines(model), AXIS, model)

    def figure(self) -> Figure:
        """R² by layer, a panel a model; bands are two standard errors to each side (matplotlib)."""
        return by_layer_for_papers({model: self._lines(model) for model in self.in_sample}, AXIS)

    def _lines(self, model: str) -> list[Line]:
        found = {
            "in-sample": (self.in_sample, self.in_sample_error),
            "held-out": (self.held_out, self.held_out_error),
        }
        lines = [
            Line(name, _mean(values[model]), 2 * errors[model], first=1)
            for name, (values, errors) in found.items()
        ]
        # without a figure, such as where no text was held out, there is no line to explain
        return [line for line in lines if not np.isnan(line.mean).all()] or lines[:1]


def _mean(values: np.ndarray) -> np.ndarray:
    """The mean over the last axis of what is not NaN; NaN of nothing."""
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(there, values, 0).sum(-1) / there.sum(-1)


def _spread(values: np.ndarray) -> np.ndarray:
    """The standard deviation over the last axis of what is not NaN."""
    count = (~np.isnan(values)).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(_mean(np.square(values - _mean(values)[..., None])) * count / (count - 1))


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
    """R² of the best linear map from the input of each feed-forward to its output, by layer.

    The input is what the first of its matrices reads (after the norm, in a pre-norm model), the
    output what it writes, with its bias, before any norm of its own and before the residual
    connection. The map is ordinary least squares with an intercept, R² the mean over the output
    dimensions. The paper standardises both sides per dimension first: R² does not depend on that.
    Only where the inputs leave several maps equally good does the choice matter, for texts that were
    held out: it is the shortest map for standardised inputs.

    Nothing is kept of a token but its share of the cross-products: 16 d² bytes a layer for each of
    the two parts of the texts, a few times over while shards are merged.

    Parameters
    ----------
    lens
        A model or several: lenses, or names for ``prosect.load``. Of an encoder with a decoder, the
        encoder.
    texts
        An iterable of strings, the path of a file with a text a line, or a dataset.
    special
        Whether the tokens that the tokenizer adds, such as [CLS], count.
    held_out
        The share of the texts that are held out. Which they are depends on the seed and on what they
        say, so that copies of a text are on the same side.
    seed
        Of that choice.
    worst
        How many failures to name in each layer. They are found, and the standard errors, in a second
        pass through the texts, which 0 saves.
    column
        The column of a dataset that has the texts.
    **options
        How to run it: see :class:`~prosect.corpus.Options`.

    Raises
    ------
    ProsectError
        If a setting is out of range, there is no text, or none fits a model.

    Warns
    -----
    UserWarning
        If there are so few tokens that a linear map fits any outputs, or no text happens to be held
        out.
    """
    check_flag(special, "special")
    check_share(held_out, "held_out", below_one=True)
    seed, worst = whole_number(seed, "seed"), whole_number(worst, "number of failures")
    if worst < 0:
        raise ProsectError(f"worst counts failures and must be at least 0, not {worst}.")
    items = numbered(read(texts, column))
    first = Products(special, float(held_out), seed)
    outcomes: dict[str, Outcome] = {}
    scores: dict[str, Scores] = {}
    found: dict[str, Arrays] = {}
    for name, model in models_of(lens).items():
        outcome = run(first, model, items, text_of, **options)
        scores[name] = Scores.of(outcome.arrays)
        if worst:
            second = Failures(first, scores[name], worst)
            again = run(second, model, items, text_of, **options)
            found[name] = again.arrays
            outcome = replace(outcome, seconds=outcome.seconds + again.seconds)
        outcomes[name] = outcome
    counts = {name: _tokens(outcome.arrays) for name, outcome in outcomes.items()}
    for name, both in scores.items():
        _warn(name, both, counts[name], held_out)
    settings = {"special": special, "held_out": float(held_out), "worst": worst}
    return LinearFFResult(
        About.of(outcomes, max(counts.values(), key=lambda c: c["tokens"]), settings, (seed,)),
        in_sample={name: both.in_sample.explained for name, both in scores.items()},
        held_out={name: both.held_out.explained for name, both in scores.items()},
        in_sample_error=_errors(scores, found, "in_sample"),
        held_out_error=_errors(scores, found, "held_out"),
        rank={name: both.in_sample.map.rank for name, both in scores.items()},
        worst={name: _columns(found.get(name), items) for name in scores},
    )


def _warn(model: str, scores: Scores, counts: Mapping[str, int], held_out: float) -> None:
    """Say where R² says nothing for want of texts."""
    tokens, rank = counts["tokens"], int(scores.in_sample.map.rank.max())
    if rank >= tokens - 1:
        warnings.warn(
            f"{model}: R² in-sample says nothing, as a linear map fits any outputs of {tokens} tokens "
            f"whose inputs vary in {rank} directions: give more texts.",
            stacklevel=3,
        )
    if held_out and not counts["of them held out"]:
        warnings.warn(f"{model}: no text is held out, so there is no R² held-out.", stacklevel=3)


def _tokens(arrays: Arrays) -> dict[str, int]:
    counts = {name: int(arrays[f"{name}/count"]) for name in ("fitted", "held_out")}
    return {"tokens": sum(counts.values()), "of them held out": counts["held_out"]}


def _errors(
    scores: Mapping[str, Scores], found: Mapping[str, Arrays], part: str
) -> dict[str, np.ndarray]:
    """The standard error of the mean R², [layer], from how far each text moves it."""
    errors = {}
    for name, both in scores.items():
        errors[name] = np.full(len(both.in_sample.map.rank), np.nan)
        if name in found:
            moves = Moments.unpacked(found[name], part)
            errors[name] = np.sqrt(moves.count) * moves.spread
    return errors


_COLUMNS = (
    *("layer", "token", "text", "position", "dimension"),
    *("value", "prediction", "deviations", "snippet"),
)


def _columns(arrays: Arrays | None, items: Sequence[Numbered]) -> dict[str, np.ndarray]:
    """The failures as columns, layer by layer."""
    if arrays is None:
        return {name: np.zeros(0) for name in _COLUMNS}
    size = arrays["size"]
    there = size >= 0  # what is no failure has no size
    flat = {name: array[there] for name, array in arrays.items() if array.shape == size.shape}
    places = zip(*(flat[name].tolist() for name in ("text", "start", "end")), strict=True)
    away = flat["value"] - flat["prediction"]
    columns = {
        **flat,
        "layer": np.nonzero(there)[0] + 1,
        "deviations": np.sqrt(flat["size"]) * np.sign(away),
        "snippet": np.array([_snippet(items[i].text, start, end) for i, start, end in places]),
    }
    return {name: columns[name] for name in _COLUMNS}


def _snippet(text: str, start: int, end: int) -> str:
    """The text around a token, which stands in brackets; the beginning where it has no place."""
    if start < 0:
        return text[: 2 * AROUND] + "…" * (len(text) > 2 * AROUND)
    before, after = text[max(0, start - AROUND) : start], text[end : end + AROUND]
    opening, closing = "…" * (start > AROUND), "…" * (len(text) > end + AROUND)
    return f"{opening}{before}⟦{text[start:end]}⟧{after}{closing}"


@dataclass(frozen=True)
class Score:
    """A linear map and how it fares on some pairs.

    Attributes
    ----------
    map
        Of whatever it was fitted to.
    mean, squares
        [layer, dimension], of the outputs: their mean and the sum of squares around it.
    explained
        [layer, dimension], R².
    count
        How many pairs.
    """

    map: LinearMap
    mean: np.ndarray
    squares: np.ndarray
    explained: np.ndarray
    count: float

    @classmethod
    def of(cls, found: LinearMap, cross: Cross) -> Score:
        """How it fares on those pairs."""
        return cls(found, cross.mean_y, cross.yy, found.explained(cross), cross.count)

    def moves(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """How far the pairs of one text, [layer, n, d], move the mean R² over dimensions: [layer].

        The linear part: R² = 1 − Σ left / Σ squares, so a text moves it by its own squares times
        (1 − R²) less what it left, over all squares. That the map was fitted to the text plays no
        part: it is where what is left is least. The moves of all texts sum to 0.
        """
        left = np.square(y - self.map(x)).sum(1)
        own = np.square(y - self.mean[:, None]).sum(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return _mean(((1 - self.explained) * own - left) / self.squares)

    def deviations(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Squared distance of y from its prediction over the output's variance, and the prediction.

        −1 where the output does not vary, or is what the map says up to rounding. In float32, so
        that equal vectors have the same distance, whatever the rest of their batch does to the last
        digits.
        """
        said = self.map(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.square(y - said) * (self.count / self.squares)[:, None]
        none = np.isnan(self.explained)[:, None] | (size < EXACT**2)
        return np.where(none, -1.0, size).astype(np.float32), said


@dataclass(frozen=True)
class Scores:
    """The map of all texts on all, and the map of the fitted texts on those that were held out."""

    in_sample: Score
    held_out: Score

    @classmethod
    def of(cls, arrays: Arrays) -> Scores:
        """Of the cross-products of both parts."""
        fitted, held_out = (Cross.unpacked(arrays, part) for part in ("fitted", "held_out"))
        both = fitted.merge(held_out)
        return cls(Score.of(LinearMap.fit(both), both), Score.of(LinearMap.fit(fitted), held_out))


@dataclass(frozen=True)
class Products:
    """The cross-products of inputs and outputs of all feed-forwards, for both parts of the texts."""

    special: bool
    held_out: float
    seed: int

    name: ClassVar[str] = "linear_ff"

    def is_held_out(self, text: str) -> bool:
        """Whether a text is in the part to which nothing is fitted."""
        return lot(text, self.seed) < self.held_out

    def measure(self, lens: Lens, items: Sequence[Numbered]) -> Arrays:
        """The cross-products of a batch."""
        pairs = [fed(trace, self.special) for trace in _traces(lens, items)]
        held_out = np.repeat(
            [self.is_held_out(item.text) for item in items], [x.shape[1] for x, _ in pairs]
        )
        x, y = (np.concatenate(side, 1) for side in zip(*pairs, strict=True))
        return {
            **Cross.of(x[:, ~held_out], y[:, ~held_out]).packed("fitted"),
            **Cross.of(x[:, held_out], y[:, held_out]).packed("held_out"),
        }

    def merge(self, first: Arrays, second: Arrays) -> Arrays:
        """The cross-products of two stretches of texts."""
        fitted, held_out = (
            Cross.unpacked(first, part).merge(Cross.unpacked(second, part)).packed(part)
            for part in ("fitted", "held_out")
        )
        return {**fitted, **held_out}


@dataclass(frozen=True)
class Failures:
    """Where the linear maps fail most, and how far each text moves their R²."""

    products: Products
    scores: Scores
    worst: int

    name: ClassVar[str] = "linear_ff_failures"

    def measure(self, lens: Lens, items: Sequence[Numbered]) -> Arrays:
        """Those of a batch."""
        traces = list(_traces(lens, items))
        pairs = [fed(trace, self.products.special) for trace in traces]
        everywhere = [self.scores.in_sample.moves(x, y) for x, y in pairs]
        apart = [
            self.scores.held_out.moves(x, y)
            for (x, y), item in zip(pairs, items, strict=True)
            if self.products.is_held_out(item.text)
        ]
        layers = len(everywhere[0])
        return {
            **Moments.of(np.reshape(everywhere, (-1, layers))).packed("in_sample"),
            **Moments.of(np.reshape(apart, (-1, layers))).packed("held_out"),
            **self._worst(traces, pairs, [item.number for item in items]),
        }

    def _worst(
        self,
        traces: Sequence[Trace],
        pairs: Sequence[tuple[np.ndarray, np.ndarray]],
        numbers: Sequence[int],
    ) -> Arrays:
        """The failures of a batch, [layer, worst], largest first."""
        x, y = (np.concatenate(side, 1) for side in zip(*pairs, strict=True))
        size, said = self.scores.in_sample.deviations(x, y)
        tokens = [
            (number, i, trace.tokens[i])
            for number, trace in zip(numbers, traces, strict=True)
            for i in counted(trace.tokens, self.products.special)
        ]
        places = [(token.id, number, i, *(token.span or (-1, -1))) for number, i, token in tokens]
        labels = np.array([token.label for *_, token in tokens], str)
        columns = dict(
            zip(_PLACE, np.reshape(places, (-1, len(_PLACE))).T.astype(int), strict=True)
        )
        # the worst of each token of the vocabulary and dimension
        order = np.argsort(columns["id"], kind="stable")
        starts = np.flatnonzero(np.diff(columns["id"][order], prepend=-1))
        most = np.maximum.reduceat(size[:, order], starts, axis=1)
        layers, _, dimensions = most.shape
        best = largest(most.reshape(layers, -1), self.worst)
        kind, dimension = np.divmod(best, dimensions)
        layer = np.arange(layers)[:, None]
        same = columns["id"] == columns["id"][order][starts][kind][..., None]
        there = np.where(same, size[layer, :, dimension], -2)
        token = there.argmax(-1) if there.size else best  # a batch may have no token that counts
        return {
            "size": size[layer, token, dimension],
            "dimension": dimension,
            "value": y[layer, token, dimension],
            "prediction": said[layer, token, dimension],
            "token": labels[token],
            **{name: column[token] for name, column in columns.items()},
        }

    def merge(self, first: Arrays, second: Arrays) -> Arrays:
        """Those of two stretches of texts."""
        moments = [
            Moments.unpacked(first, part).merge(Moments.unpacked(second, part)).packed(part)
            for part in ("in_sample", "held_out")
        ]
        columns = {
            name: np.concatenate([first[name], second[name]], 1)
            for name in ("size", "dimension", "value", "prediction", "token", *_PLACE)
        }
        width = self.scores.in_sample.squares.shape[1]
        sizes = once(columns["size"], columns["id"] * width + columns["dimension"])
        best = largest(sizes, self.worst)
        columns["size"] = sizes
        return {
            **moments[0],
            **moments[1],
            **{name: np.take_along_axis(array, best, 1) for name, array in columns.items()},
        }


_PLACE = ("id", "text", "position", "start", "end")


def _traces(lens: Lens, items: Sequence[Numbered]) -> Any:
    return lens.traces([item.text for item in items], batch_size=len(items))


def fed(trace: Trace, special: bool) -> tuple[np.ndarray, np.ndarray]:
    """What every feed-forward of a run read and wrote, each [layer, token, d], in float64."""
    tokens = counted(trace.tokens, special)
    steps = [
        (record.read[tokens], record.output[tokens]) for record in trace.run.stream.feed_forwards
    ]
    x, y = (torch.stack(side).double().cpu().numpy() for side in zip(*steps, strict=True))
    return x, y

"""How the shares of the terms differ between two models, such as before and after fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import torch
from typing_extensions import Unpack

from prosect.corpus.data.texts import (
    NumberedText,
    Texts,
    number_texts,
    read,
    selected_positions,
    text_of,
)
from prosect.corpus.experiments.result import About, Result
from prosect.corpus.running.runner import Options, concatenate, run
from prosect.corpus.running.workers import Models, models_of, one_model
from prosect.corpus.statistics.moments import Arrays, ClusteredMean
from prosect.engines.measures import ranks, spearman
from prosect.errors import ProsectError
from prosect.figures.by_layer import Line, by_layer, by_layer_for_papers
from prosect.lens import Lens
from prosect.modes import plain_arithmetic
from prosect.optional import needs
from prosect.validation import check_flag, check_known

if TYPE_CHECKING:
    import pandas as pd
    from bqplot.figure import Figure as BqplotFigure
    from matplotlib.figure import Figure

Quantity = Literal["correlation", "change"]
MIN_SPREAD = 1e-6
"""Shares with a smaller standard deviation over tokens count as constant."""


@dataclass(frozen=True, eq=False, repr=False)
class CorrelationResult(Result):
    """The differences in importance between models on the same tokens, by term and layer.

    Attributes
    ----------
    terms
        The names of the terms.
    pairs
        The two models of each pair, by the name of the pair, "first → second".
    mean
        By model, [term, layer+1], the mean importance over tokens. Layer 0 is the embeddings.
    change
        By pair, [term, layer+1], the mean over tokens of the second model's importance minus the
        first's.
    change_error
        By pair, the same shape, the standard error of the paired differences, with texts as
        independent draws.
    correlation
        By pair, [term, layer+1], Spearman's ρ of the two models' importance over all tokens; NaN
        where it is constant in a model, as for attention in the embeddings.
    correlation_error
        By pair, the same shape, the standard error of ρ, with texts as independent draws.
    """

    terms: list[str]
    pairs: dict[str, list[str]]
    mean: dict[str, np.ndarray]
    change: dict[str, np.ndarray]
    change_error: dict[str, np.ndarray]
    correlation: dict[str, np.ndarray]
    correlation_error: dict[str, np.ndarray]

    def to_frame(self) -> pd.DataFrame:
        """Return means, change, ρ and standard errors, one row per pair, layer and term."""
        pandas = needs("pandas")
        rows = [
            (
                *(first, second, layer, term),
                *(float(self.mean[model][t, layer]) for model in (first, second)),
                *(float(getattr(self, name)[pair][t, layer]) for name in _COLUMNS),
            )
            for pair, (first, second) in self.pairs.items()
            for layer in range(self.change[pair].shape[1])
            for t, term in enumerate(self.terms)
        ]
        columns = ["first", "second", "layer", "term", "mean_first", "mean_second", *_COLUMNS]
        return pandas.DataFrame(rows, columns=columns)

    def plot(self, quantity: Quantity = "correlation") -> BqplotFigure:
        """Draw ρ or the change of the mean by layer, one line per term, for the first pair (bqplot)."""
        pair = next(iter(self.pairs))
        return by_layer(self._lines(pair, quantity), _AXIS[quantity], pair)

    def figure(self, quantity: Quantity = "correlation") -> Figure:
        """Draw the same, one panel per pair; bands are ± two standard errors (matplotlib)."""
        panels = {pair: self._lines(pair, quantity) for pair in self.pairs}
        return by_layer_for_papers(panels, _AXIS[quantity])

    def _lines(self, pair: str, quantity: Quantity) -> list[Line]:
        check_known(quantity, get_args(Quantity), "quantity")
        values, errors = getattr(self, quantity)[pair], getattr(self, f"{quantity}_error")[pair]
        return [Line(term, values[t], 2 * errors[t]) for t, term in enumerate(self.terms)]


_COLUMNS = ("change", "change_error", "correlation", "correlation_error")
_AXIS = {
    "correlation": "Spearman's ρ of importance over tokens",
    "change": "change of importance, mean over tokens",
}


@plain_arithmetic()
def correlation(
    models: Models,
    texts: Texts | Any,
    *,
    special: bool = True,
    column: str = "text",
    **options: Unpack[Options],
) -> CorrelationResult:
    """Compare the importance of the terms between models on the same tokens, by pair and layer.

    The paper compares a pretrained model with fine-tuned ones. Any models can be compared that
    tokenize the texts in the same way and have the same number of layers: layers of models of
    different depth do not correspond, so such models are refused.

    The importance of each term in each token is stored in float32, so that ranks are exact. Equal
    values share their mean rank. The standard error of ρ is that of its linear approximation.

    Parameters
    ----------
    models
        At least two: a mapping of names to lenses or to names for ``prosect.load``; or a list.
    texts
        An iterable of strings, the path of a file with one text per line, or a dataset. Texts that
        do not fit all of the models are skipped.
    special
        Whether special tokens, such as [CLS], are included.
    column
        The column of a dataset that holds the texts.
    **options
        How to run the experiment: see :class:`~prosect.corpus.Options`.

    Raises
    ------
    ProsectError
        If there is only one model; the models differ in layers, terms or in the tokens of a text
        (the message names the first such text); there is no text, or no text fits all models.
    ReconstructionError
        If the terms of a text do not add up to a model's hidden states.
    """
    check_flag(special, "special")
    named = models_of(models)
    if len(named) < 2:
        raise ProsectError(f"models must contain at least two models, got {len(named)}.")
    items = number_texts(read(texts, column))
    task = TokenShares(special)
    _check_comparable(task, named, items)
    outcomes = {name: run(task, model, items, text_of, **options) for name, model in named.items()}
    common = _common_texts({name: outcome.arrays for name, outcome in outcomes.items()})
    _check_same_tokens(common, items)
    first = next(iter(common.values()))
    counts = first["tokens"]
    shares = {name: arrays["shares"].astype(np.float64) for name, arrays in common.items()}
    pairs = {f"{a} → {b}": [a, b] for a, b in combinations(named, 2)}
    pair_shares = {pair: (shares[a], shares[b]) for pair, (a, b) in pairs.items()}
    changes = {pair: _mean_change(a, b, counts) for pair, (a, b) in pair_shares.items()}
    correlations = {pair: _correlations(a, b, counts) for pair, (a, b) in pair_shares.items()}
    about = About.of(outcomes, {"tokens": int(counts.sum())}, {"special": special})
    return CorrelationResult(
        replace(about, texts=len(counts), skipped=len(items) - len(counts)),
        terms=[str(name) for name in first["names"]],
        pairs=pairs,
        mean={name: values.mean(0) for name, values in shares.items()},
        change={pair: change.mean for pair, change in changes.items()},
        change_error={pair: change.error for pair, change in changes.items()},
        correlation={pair: rho for pair, (rho, _) in correlations.items()},
        correlation_error={pair: error for pair, (_, error) in correlations.items()},
    )


def _check_comparable(
    task: TokenShares, models: Mapping[str, Lens | str], items: Sequence[NumberedText]
) -> None:
    """Compare layers, terms and tokens on one text before any model runs on all texts."""
    samples: dict[str, Arrays] = {}
    for name, model in models.items():
        lens, _ = one_model(model)
        fitting = next((item for item in items if lens.fits(item.text)), None)
        if fitting is not None:
            samples[name] = task.measure(lens, [fitting])
    terms = {name: [str(x) for x in arrays["names"]] for name, arrays in samples.items()}
    layers = {name: arrays["shares"].shape[2] - 1 for name, arrays in samples.items()}
    for what, by_model in (("layers", layers), ("terms", terms)):
        for (a, x), (b, y) in combinations(by_model.items(), 2):
            if x != y:
                raise ProsectError(
                    f"Models must have the same {what} to be compared layer by layer and term by "
                    f"term, but {a} has {x} and {b} has {y}."
                )
    if len({int(arrays["texts"][0]) for arrays in samples.values()}) == 1:
        _check_same_tokens(samples, items)


def _common_texts(by_model: Mapping[str, Arrays]) -> dict[str, Arrays]:
    """Select the texts that fit all models and have an included token."""
    texts = set.intersection(
        *(set(arrays["texts"][arrays["tokens"] > 0].tolist()) for arrays in by_model.values())
    )
    if not texts:
        raise ProsectError("No text fits all of the models and has an included token.")
    common = {}
    for name, arrays in by_model.items():
        kept = np.isin(arrays["texts"], list(texts))
        common[name] = {
            "shares": arrays["shares"][np.repeat(kept, arrays["tokens"])],
            **{key: arrays[key][kept] for key in ("texts", "tokens", "digests")},
            "names": arrays["names"],
        }
    return common


def _check_same_tokens(by_model: Mapping[str, Arrays], items: Sequence[NumberedText]) -> None:
    (a, first), *others = by_model.items()
    for b, arrays in others:
        differing = np.flatnonzero(arrays["digests"] != first["digests"])
        if len(differing):
            number = int(first["texts"][differing[0]])
            text = items[number].text
            shown = text if len(text) <= 40 else text[:40] + "…"
            raise ProsectError(
                "Models must have the same tokenizer to be compared token by token, "
                f"but {a} and {b} split text {number}, {shown!r}, into different tokens."
            )


def _mean_change(a: np.ndarray, b: np.ndarray, counts: np.ndarray) -> ClusteredMean:
    """The mean of b − a, [token, term, layer+1], for texts with these numbers of tokens."""
    return ClusteredMean.of(_sum_by_text(b - a, counts), counts)


def _sum_by_text(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The sum over the tokens of each text."""
    return np.add.reduceat(values, np.cumsum(counts) - counts, axis=0)


def _correlations(
    a: np.ndarray, b: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """ρ and its standard error, each [term, layer+1]."""
    rho, error = np.full((2, *a.shape[1:]), np.nan)
    constant = np.minimum(a.std(0), b.std(0)) < MIN_SPREAD
    for index in zip(*np.nonzero(~constant), strict=True):
        x, y = (values[(slice(None), *index)] for values in (a, b))
        rho[index] = float(spearman(torch.from_numpy(x), torch.from_numpy(y)))
        error[index] = _spearman_error(x, y, counts)
    return rho, error


def _spearman_error(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> float:
    """The standard error of Spearman's ρ, with texts as independent draws (Hájek projection).

    ρ = 12 E[F(x) G(y)] − 3, where F and G are the distribution functions of x and y. A token (x, y)
    contributes through the expectation and through F and G. To first order its influence on ρ is
    12 (F(x) G(y) + E[1{X ≥ x} G(Y)] + E[1{Y ≥ y} F(X)] − 3 E[F G]) / n.
    """
    texts, n = len(counts), len(x)
    if texts < 2:
        return np.nan
    F, G = ((ranks(torch.from_numpy(v)).numpy() - 0.5) / n for v in (x, y))
    influence = F * G + _mean_above(F, G) + _mean_above(G, F) - 3 * (F @ G) / n
    total = _sum_by_text(12 * influence / n, counts)
    return float(np.sqrt(texts / (texts - 1) * np.square(total - total.mean()).sum()))


def _mean_above(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """E[values · 1{X ≥ x}] for each x, with a weight of one half for X = x."""
    _, index, counts = np.unique(x, return_inverse=True, return_counts=True)
    sums = np.bincount(index, values, len(counts))
    return ((sums[::-1].cumsum()[::-1] - sums / 2) / len(x))[index]


@dataclass(frozen=True)
class TokenShares:
    """The importance of each term in each token, and a digest of the tokens."""

    special: bool

    name: ClassVar[str] = "correlation"

    def measure(self, lens: Lens, items: Sequence[NumberedText]) -> Arrays:
        """Compute the shares of a batch."""
        shares, digests, names = [], [], ()
        for trace in lens.traces([item.text for item in items], batch_size=len(items)):
            terms = trace.terms()
            names = terms.names
            kept = selected_positions(trace.tokens, self.special)
            shares.append(terms.importance()[..., kept].movedim(-1, 0).float().cpu().numpy())
            digests.append(_digest([trace.tokens[i].label for i in kept]))
        return {
            "shares": np.concatenate(shares),  # [token, term, layer+1]
            "texts": np.array([item.number for item in items]),
            "tokens": np.array([len(x) for x in shares]),
            "digests": np.array(digests, np.uint64),
            "names": np.array(names),
        }

    def merge(self, first: Arrays, second: Arrays) -> Arrays:
        """Concatenate the shares of two ranges of texts."""
        return {**concatenate(first, second), "names": first["names"]}


def _digest(labels: Sequence[str]) -> int:
    text = "\0".join(labels).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")

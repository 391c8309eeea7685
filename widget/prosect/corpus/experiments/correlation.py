"""What tuning, or another training, does to the shares of the terms (Mickus et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import torch
from typing_extensions import Unpack

from prosect.corpus.data.texts import Numbered, Texts, counted, numbered, read, text_of
from prosect.corpus.experiments.result import About, Result
from prosect.corpus.running.runner import Options, concatenate, run
from prosect.corpus.running.workers import Models, models_of, one_model
from prosect.corpus.statistics.moments import Arrays, Clustered
from prosect.engines.measures import ranks, spearman
from prosect.errors import ProsectError
from prosect.figures.by_layer import Line, by_layer, by_layer_for_papers
from prosect.lens import Lens
from prosect.validation import check_flag, check_known

if TYPE_CHECKING:
    import pandas as pd
    from bqplot.figure import Figure as BqplotFigure
    from matplotlib.figure import Figure

Figured = Literal["correlation", "change"]
STILL = 1e-6
"""Shares whose standard deviation over tokens is less than this are all the same."""


@dataclass(frozen=True, eq=False, repr=False)
class CorrelationResult(Result):
    """How the importance of each term differs between models on the same tokens, by layer.

    Attributes
    ----------
    terms
        The names of the terms.
    pairs
        The two models of each pair, by its name, "first → second".
    mean
        By model, [term, layer+1], the mean importance over tokens. Layer 0 is the embeddings.
    change
        By pair, [term, layer+1], the mean over tokens of the second model's importance minus the
        first's.
    change_error
        By pair, the same, its standard error: of the paired differences, with texts as the
        independent draws.
    correlation
        By pair, [term, layer+1], Spearman's ρ of the two models' importance over all tokens; NaN
        where a model gives every token the same, as there is no attention in the embeddings.
    correlation_error
        By pair, the same, its standard error, with texts as the independent draws.
    """

    terms: list[str]
    pairs: dict[str, list[str]]
    mean: dict[str, np.ndarray]
    change: dict[str, np.ndarray]
    change_error: dict[str, np.ndarray]
    correlation: dict[str, np.ndarray]
    correlation_error: dict[str, np.ndarray]

    def to_frame(self) -> pd.DataFrame:
        """A row for each pair, layer and term: both means, their change, ρ, standard errors."""
        import pandas as pd

        rows = [
            (
                *(first, second, layer, term),
                *(float(self.mean[model][t, layer]) for model in (first, second)),
                *(float(getattr(self, name)[pair][t, layer]) for name in _FIGURES),
            )
            for pair, (first, second) in self.pairs.items()
            for layer in range(self.change[pair].shape[1])
            for t, term in enumerate(self.terms)
        ]
        columns = ["first", "second", "layer", "term", "mean_first", "mean_second", *_FIGURES]
        return pd.DataFrame(rows, columns=columns)

    def plot(self, what: Figured = "correlation") -> BqplotFigure:
        """Spearman's ρ, or the change of the mean, by layer, a line a term: the first pair (bqplot)."""
        pair = next(iter(self.pairs))
        return by_layer(self._lines(pair, what), _AXIS[what], pair)

    def figure(self, what: Figured = "correlation") -> Figure:
        """The same, a panel a pair; bands are two standard errors to each side (matplotlib)."""
        panels = {pair: self._lines(pair, what) for pair in self.pairs}
        return by_layer_for_papers(panels, _AXIS[what])

    def _lines(self, pair: str, what: Figured) -> list[Line]:
        check_known(what, get_args(Figured), "figure of")
        values, errors = getattr(self, what)[pair], getattr(self, f"{what}_error")[pair]
        return [Line(term, values[t], 2 * errors[t]) for t, term in enumerate(self.terms)]


_FIGURES = ("change", "change_error", "correlation", "correlation_error")
_AXIS = {
    "correlation": "Spearman's ρ of importance over tokens",
    "change": "change of importance, mean over tokens",
}


def correlation(
    models: Models,
    texts: Texts | Any,
    *,
    special: bool = True,
    column: str = "text",
    **options: Unpack[Options],
) -> CorrelationResult:
    """Compare the terms' importance between models on the same tokens, pair by pair and by layer.

    The figure of the paper for a pretrained model and those that were tuned from it, for any models
    that read texts as the same tokens and have as many layers: a layer of a shorter model is not
    that of a longer one, so models of different depth are refused.

    The importance of each term in each token is kept, in float32, so that ranks are exact; equal
    values share the mean of their ranks. The standard error of ρ is that of its linear part.

    Parameters
    ----------
    models
        At least two: a mapping of names to lenses, or to names for ``prosect.load``; or a list.
    texts
        An iterable of strings, the path of a file with a text a line, or a dataset. Texts that do
        not fit all of the models are skipped.
    special
        Whether the tokens that the tokenizer adds, such as [CLS], count.
    column
        The column of a dataset that has the texts.
    **options
        How to run it: see :class:`~prosect.corpus.Options`.

    Raises
    ------
    ProsectError
        If there is only one model, models differ in layers, terms or in the tokens of a text (the
        message names the first such text), there is no text, or none fits all models.
    ReconstructionError
        If the terms of a text do not add up to what a model computed.
    """
    check_flag(special, "special")
    named = models_of(models)
    if len(named) < 2:
        raise ProsectError("correlation compares models: give at least two, by name.")
    items = numbered(read(texts, column))
    task = Tokens(special)
    _check_first(task, named, items)
    outcomes = {name: run(task, model, items, text_of, **options) for name, model in named.items()}
    found = _common({name: outcome.arrays for name, outcome in outcomes.items()})
    _check_same(found, items)
    first = next(iter(found.values()))
    counts = first["tokens"]
    shares = {name: arrays["shares"].astype(np.float64) for name, arrays in found.items()}
    pairs = {f"{a} → {b}": [a, b] for a, b in combinations(named, 2)}
    both = {pair: (shares[a], shares[b]) for pair, (a, b) in pairs.items()}
    changes = {pair: _change(a, b, counts) for pair, (a, b) in both.items()}
    correlations = {pair: _correlations(a, b, counts) for pair, (a, b) in both.items()}
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


def _check_first(task: Tokens, models: Mapping[str, Lens | str], items: Sequence[Numbered]) -> None:
    """Look at one text before all of them are run through the first model."""
    found: dict[str, Arrays] = {}
    for name, model in models.items():
        lens, _ = one_model(model)
        fitting = next((item for item in items if lens.fits(item.text)), None)
        if fitting is not None:
            found[name] = task.measure(lens, [fitting])
    kinds = {name: [str(x) for x in arrays["names"]] for name, arrays in found.items()}
    layers = {name: arrays["shares"].shape[2] - 1 for name, arrays in found.items()}
    for what, of_each in (("layers", layers), ("terms", kinds)):
        for (a, x), (b, y) in combinations(of_each.items(), 2):
            if x != y:
                raise ProsectError(
                    f"{a} and {b} have different {what}, {x} and {y}: "
                    "correlation compares models layer by layer and term by term."
                )
    if len({int(arrays["texts"][0]) for arrays in found.values()}) == 1:
        _check_same(found, items)


def _common(found: Mapping[str, Arrays]) -> dict[str, Arrays]:
    """What was measured of the texts that fit all models and have tokens that count."""
    texts = set.intersection(
        *(set(arrays["texts"][arrays["tokens"] > 0].tolist()) for arrays in found.values())
    )
    if not texts:
        raise ProsectError("No text fits all of the models with a token that counts.")
    common = {}
    for name, arrays in found.items():
        there = np.isin(arrays["texts"], list(texts))
        common[name] = {
            "shares": arrays["shares"][np.repeat(there, arrays["tokens"])],
            **{key: arrays[key][there] for key in ("texts", "tokens", "digests")},
            "names": arrays["names"],
        }
    return common


def _check_same(found: Mapping[str, Arrays], items: Sequence[Numbered]) -> None:
    (a, first), *others = found.items()
    for b, arrays in others:
        differ = np.flatnonzero(arrays["digests"] != first["digests"])
        if len(differ):
            number = int(first["texts"][differ[0]])
            text = items[number].text
            shown = text if len(text) <= 40 else text[:40] + "…"
            raise ProsectError(
                f"{a} and {b} read text {number}, {shown!r}, as different tokens: "
                "correlation compares models token by token, so they need the same tokenizer."
            )


def _change(a: np.ndarray, b: np.ndarray, counts: np.ndarray) -> Clustered:
    """Of the differences b − a, [token, term, layer+1], of texts with so many tokens."""
    return Clustered.of(_by_text(b - a, counts), counts)


def _by_text(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The sum over each text's tokens."""
    return np.add.reduceat(values, np.cumsum(counts) - counts, axis=0)


def _correlations(
    a: np.ndarray, b: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """ρ and its standard error, each [term, layer+1]."""
    found = np.full((2, *a.shape[1:]), np.nan)
    still = np.minimum(a.std(0), b.std(0)) < STILL
    for place in zip(*np.nonzero(~still), strict=True):
        x, y = (values[(slice(None), *place)] for values in (a, b))
        found[0][place] = float(spearman(torch.from_numpy(x), torch.from_numpy(y)))
        found[1][place] = _error(x, y, counts)
    return found[0], found[1]


def _error(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> float:
    """The standard error of Spearman's ρ, with texts as the independent draws.

    ρ = 12 E[F(x) G(y)] − 3 with F and G the distributions of x and y; a token (x, y) moves it by
    12 (F(x) G(y) + E[1{X ≥ x} G(Y)] + E[1{Y ≥ y} F(X)] − 3 E[F G]) / n, as it is also one of those
    that F and G count (the projection of Hájek).
    """
    texts, n = len(counts), len(x)
    if texts < 2:
        return np.nan
    F, G = ((ranks(torch.from_numpy(v)).numpy() - 0.5) / n for v in (x, y))
    moves = F * G + _beyond(F, G) + _beyond(G, F) - 3 * (F @ G) / n
    total = _by_text(12 * moves / n, counts)
    return float(np.sqrt(texts / (texts - 1) * np.square(total - total.mean()).sum()))


def _beyond(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The mean over all of values · 1{their x ≥ this x}; of its equals half."""
    _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    sums = np.bincount(place, values, len(counts))
    return ((sums[::-1].cumsum()[::-1] - sums / 2) / len(x))[place]


@dataclass(frozen=True)
class Tokens:
    """The importance of each term in each token, and which tokens they are."""

    special: bool

    name: ClassVar[str] = "correlation"

    def measure(self, lens: Lens, items: Sequence[Numbered]) -> Arrays:
        """Those of a batch."""
        shares, digests, names = [], [], ()
        for trace in lens.traces([item.text for item in items], batch_size=len(items)):
            terms = trace.terms()
            names = terms.names
            kept = counted(trace.tokens, self.special)
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
        """Those of two stretches of texts."""
        return {**concatenate(first, second), "names": first["names"]}


def _digest(labels: Sequence[str]) -> int:
    text = "\0".join(labels).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")

"""The share of each term in the embeddings by layer, over many texts (Mickus et al. 2022, Fig. 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import torch
from typing_extensions import Unpack

from prosect.corpus.data.texts import Texts, read, selected_positions
from prosect.corpus.experiments import paper
from prosect.corpus.experiments.result import About, Result, counts_by_unit
from prosect.corpus.running.runner import Options, run
from prosect.corpus.running.workers import Models, models_of
from prosect.corpus.statistics.moments import Arrays, ClusteredMean, Moments
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

TermMeasure = Literal["importance", "norm", "cosine"]
TERM_MEASURES: tuple[TermMeasure, ...] = get_args(TermMeasure)


@dataclass(frozen=True, eq=False, repr=False)
class ImportanceResult(Result):
    """Mean and spread of the shares of the terms, by layer.

    Attributes
    ----------
    terms
        By model, the names of the terms.
    mean
        By model, [measure, term, layer+1], the mean over tokens. The measures are importance μ,
        which sums to 1 over terms, norm |a|/|e|, and cosine. Layer 0 is the embeddings.
    spread
        By model, the same shape, the standard deviation over tokens.
    error
        By model, the same shape, the standard error of the mean, with texts as independent draws.
    """

    terms: dict[str, list[str]]
    mean: dict[str, np.ndarray]
    spread: dict[str, np.ndarray]
    error: dict[str, np.ndarray]

    def to_frame(self) -> pd.DataFrame:
        """Return mean, spread and standard error, one row per model, layer, term and measure."""
        pandas = needs("pandas")
        rows = [
            (
                *(model, layer, term, measure),
                *(
                    float(array[model][m, t, layer])
                    for array in (self.mean, self.spread, self.error)
                ),
            )
            for model, terms in self.terms.items()
            for layer in range(self.mean[model].shape[-1])
            for t, term in enumerate(terms)
            for m, measure in enumerate(TERM_MEASURES)
        ]
        columns = ["model", "layer", "term", "measure", "mean", "spread", "standard_error"]
        return pandas.DataFrame(rows, columns=columns)

    def compare(self) -> pd.DataFrame:
        """Return importance by layer (rows) and term beside the paper's of bert-base-uncased."""
        pandas = needs("pandas")
        reported = paper.IMPORTANCE.T
        columns = {}
        for t, term in enumerate(paper.TERMS):
            for model, terms in self.terms.items():
                columns[term, model] = pandas.Series(self.mean[model][0, terms.index(term)])
            columns[term, f"{paper.MODEL} (paper)"] = pandas.Series(reported[t])
        return pandas.DataFrame(columns).rename_axis("layer")

    def plot(self, measure: TermMeasure = "importance") -> BqplotFigure:
        """Draw the means by layer, one line per term, for the first model (bqplot)."""
        model = next(iter(self.terms))
        return by_layer(self._lines(model, measure), _AXIS[measure], model)

    def figure(self, measure: TermMeasure = "importance") -> Figure:
        """Draw the means by layer, one panel per model; bands show the spread (matplotlib)."""
        panels = {model: self._lines(model, measure) for model in self.terms}
        return by_layer_for_papers(panels, _AXIS[measure])

    def _lines(self, model: str, measure: TermMeasure) -> list[Line]:
        check_known(measure, TERM_MEASURES, "measure")
        m = TERM_MEASURES.index(measure)
        return [
            Line(term, self.mean[model][m, t], self.spread[model][m, t])
            for t, term in enumerate(self.terms[model])
        ]


_AXIS = {
    "importance": "importance, mean over tokens",
    "norm": "norm relative to the embedding",
    "cosine": "cosine with the embedding",
}


@plain_arithmetic()
def importance(
    lens: Models,
    texts: Texts | Any,
    *,
    special: bool = True,
    column: str = "text",
    **options: Unpack[Options],
) -> ImportanceResult:
    """Compute the share of each term in the embeddings of many texts, by layer.

    Parameters
    ----------
    lens
        One model or several: lenses, or names for ``prosect.load``.
    texts
        An iterable of strings, the path of a file with one text per line, or a dataset.
    special
        Whether special tokens, such as [CLS], are included.
    column
        The column of a dataset that holds the texts.
    **options
        How to run the experiment: see :class:`~prosect.corpus.Options`.

    Raises
    ------
    ProsectError
        If there is no text, no text fits a model, or no token is included.
    ReconstructionError
        If the terms of a text do not add up to the model's hidden states.
    """
    check_flag(special, "special")
    strings = read(texts, column)
    task = TermShares(special)
    outcomes = {
        name: run(task, model, strings, **options) for name, model in models_of(lens).items()
    }
    moments = {name: Moments.unpack(o.arrays, "tokens") for name, o in outcomes.items()}
    means = {name: ClusteredMean.unpack(o.arrays, "texts") for name, o in outcomes.items()}
    counts = {name: int(own.count) for name, own in moments.items()}
    for name, count in counts.items():
        if count == 0:
            raise ProsectError(
                f"The texts have only special tokens for {name}: use special=True or other texts."
            )
    return ImportanceResult(
        About.of(outcomes, counts_by_unit("tokens", counts), {"special": special}),
        terms={name: [str(term) for term in o.arrays["names"]] for name, o in outcomes.items()},
        mean={name: own.mean for name, own in moments.items()},
        spread={name: own.spread for name, own in moments.items()},
        error={name: own.error for name, own in means.items()},
    )


@dataclass(frozen=True)
class TermShares:
    """Importance, norm and cosine of the terms, as moments over tokens and over texts."""

    special: bool

    name: ClassVar[str] = "importance"

    def measure(self, lens: Lens, items: Sequence[str]) -> Arrays:
        """Compute the moments of a batch."""
        by_text, names = [], ()
        for trace in lens.traces(items, batch_size=len(items)):
            terms = trace.terms()
            names = terms.names
            values = torch.stack([terms.importance(), terms.norm(), terms.cosine()])
            positions = selected_positions(trace.tokens, self.special)
            # [token, measure, term, layer+1]
            by_text.append(values[..., positions].double().movedim(-1, 0).cpu().numpy())
        totals = np.stack([values.sum(0) for values in by_text])
        counts = np.array([len(values) for values in by_text])
        return {
            **Moments.of(np.concatenate(by_text)).pack("tokens"),
            **ClusteredMean.of(totals, counts).pack("texts"),
            "names": np.array(names),
        }

    def merge(self, first: Arrays, second: Arrays) -> Arrays:
        """Merge the moments of two ranges of texts."""
        tokens = Moments.unpack(first, "tokens").merge(Moments.unpack(second, "tokens"))
        texts = ClusteredMean.unpack(first, "texts").merge(ClusteredMean.unpack(second, "texts"))
        return {**tokens.pack("tokens"), **texts.pack("texts"), "names": first["names"]}

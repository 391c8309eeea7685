"""How much each term makes up of every embedding, by layer, over many texts (Mickus et al., Fig. 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import torch
from typing_extensions import Unpack

from prosect.corpus.data.texts import Texts, counted, read
from prosect.corpus.experiments import paper
from prosect.corpus.experiments.result import About, Result, by_model
from prosect.corpus.running.runner import Options, run
from prosect.corpus.running.workers import Models, models_of
from prosect.corpus.statistics.moments import Arrays, Clustered, Moments
from prosect.errors import ProsectError
from prosect.figures.by_layer import Line, by_layer, by_layer_for_papers
from prosect.lens import Lens
from prosect.validation import check_flag, check_known

if TYPE_CHECKING:
    import pandas as pd
    from bqplot.figure import Figure as BqplotFigure
    from matplotlib.figure import Figure

Measure = Literal["importance", "norm", "cosine"]
MEASURES: tuple[Measure, ...] = get_args(Measure)


@dataclass(frozen=True, eq=False, repr=False)
class ImportanceResult(Result):
    """The mean and the spread of the terms' shares, by layer.

    Attributes
    ----------
    terms
        The names of the terms of each model.
    mean
        By model, [measure, term, layer+1], over tokens; measures are importance μ, which sums to 1
        over terms, norm |a|/|e|, and cosine. Layer 0 is the embeddings.
    spread
        By model, the same, the standard deviation over tokens.
    error
        By model, the same, the standard error of the mean, with texts as the independent draws.
    """

    terms: dict[str, list[str]]
    mean: dict[str, np.ndarray]
    spread: dict[str, np.ndarray]
    error: dict[str, np.ndarray]

    def to_frame(self) -> pd.DataFrame:
        """A row for each model, layer, term and measure: mean, spread and standard error."""
        import pandas as pd

        rows = [
            (model, layer, term, measure, *(float(x[m, t, layer]) for x in found))
            for model, terms in self.terms.items()
            for found in [(self.mean[model], self.spread[model], self.error[model])]
            for layer in range(found[0].shape[-1])
            for t, term in enumerate(terms)
            for m, measure in enumerate(MEASURES)
        ]
        columns = ["model", "layer", "term", "measure", "mean", "spread", "standard_error"]
        return pd.DataFrame(rows, columns=columns)

    def compare(self) -> pd.DataFrame:
        """Importance by layer (rows), for each term ours beside the paper's of bert-base-uncased."""
        import pandas as pd

        reported = paper.IMPORTANCE.T
        columns = {}
        for t, term in enumerate(paper.TERMS):
            for model, terms in self.terms.items():
                columns[term, model] = pd.Series(self.mean[model][0, terms.index(term)])
            columns[term, f"{paper.MODEL} (paper)"] = pd.Series(reported[t])
        return pd.DataFrame(columns).rename_axis("layer")

    def plot(self, measure: Measure = "importance") -> BqplotFigure:
        """The means by layer, one line a term, for the first model (bqplot)."""
        model = next(iter(self.terms))
        return by_layer(self._lines(model, measure), _AXIS[measure], model)

    def figure(self, measure: Measure = "importance") -> Figure:
        """The means by layer, a panel a model; bands are the spread over tokens (matplotlib)."""
        panels = {model: self._lines(model, measure) for model in self.terms}
        return by_layer_for_papers(panels, _AXIS[measure])

    def _lines(self, model: str, measure: Measure) -> list[Line]:
        check_known(measure, MEASURES, "measure")
        m = MEASURES.index(measure)
        return [
            Line(term, self.mean[model][m, t], self.spread[model][m, t])
            for t, term in enumerate(self.terms[model])
        ]


_AXIS = {
    "importance": "importance, mean over tokens",
    "norm": "norm in units of the embedding's",
    "cosine": "cosine with the embedding",
}


def importance(
    lens: Models,
    texts: Texts | Any,
    *,
    special: bool = True,
    column: str = "text",
    **options: Unpack[Options],
) -> ImportanceResult:
    """How much each term makes up of the embeddings of many texts, by layer.

    Parameters
    ----------
    lens
        A model or several: lenses, or names for ``prosect.load``.
    texts
        An iterable of strings, the path of a file with a text a line, or a dataset.
    special
        Whether the tokens that the tokenizer adds, such as [CLS], count.
    column
        The column of a dataset that has the texts.
    **options
        How to run it: see :class:`~prosect.corpus.Options`.

    Raises
    ------
    ProsectError
        If there is no text, none fits a model, or no token counts.
    ReconstructionError
        If the terms of a text do not add up to what the model computed.
    """
    check_flag(special, "special")
    listed = read(texts, column)
    task = Shares(special)
    outcomes = {
        name: run(task, model, listed, **options) for name, model in models_of(lens).items()
    }
    tokens = {name: Moments.unpacked(o.arrays, "tokens") for name, o in outcomes.items()}
    clusters = {name: Clustered.unpacked(o.arrays, "texts") for name, o in outcomes.items()}
    names = {name: _names(o.arrays) for name, o in outcomes.items()}
    counts = {name: int(moments.count) for name, moments in tokens.items()}
    for name, count in counts.items():
        if count == 0:
            raise ProsectError(
                f"No token counts in what {name} reads: set special=True, or give words."
            )
    return ImportanceResult(
        About.of(outcomes, by_model("tokens", counts), {"special": special}),
        terms=names,
        mean={name: moments.mean for name, moments in tokens.items()},
        spread={name: moments.spread for name, moments in tokens.items()},
        error={name: cluster.error for name, cluster in clusters.items()},
    )


def _names(arrays: Arrays) -> list[str]:
    return [str(name) for name in arrays["names"]]


@dataclass(frozen=True)
class Shares:
    """Importance, norm and cosine of the terms, as moments over tokens and over texts."""

    special: bool

    name: ClassVar[str] = "importance"

    def measure(self, lens: Lens, items: Sequence[str]) -> Arrays:
        """The moments of a batch."""
        found, names = [], ()
        for trace in lens.traces(items, batch_size=len(items)):
            terms = trace.terms()
            names = terms.names
            values = torch.stack([terms.importance(), terms.norm(), terms.cosine()])
            kept = counted(trace.tokens, self.special)
            # [token, measure, term, layer+1]
            found.append(values[..., kept].double().movedim(-1, 0).cpu().numpy())
        totals, counts = np.stack([x.sum(0) for x in found]), np.array([len(x) for x in found])
        return {
            **Moments.of(np.concatenate(found)).packed("tokens"),
            **Clustered.of(totals, counts).packed("texts"),
            "names": np.array(names),
        }

    def merge(self, first: Arrays, second: Arrays) -> Arrays:
        """The moments of two stretches of texts."""
        tokens = Moments.unpacked(first, "tokens").merge(Moments.unpacked(second, "tokens"))
        texts = Clustered.unpacked(first, "texts").merge(Clustered.unpacked(second, "texts"))
        return {**tokens.packed("tokens"), **texts.packed("texts"), "names": first["names"]}

"""Predicting tokens from every subset of the terms (Mickus et al. 2022, section 4.1).

With the model's own head on the sum of a subset's terms, which was trained for the sum of all of
them; and with a linear head that is learned for each subset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
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
from prosect.corpus.result import About, Result
from prosect.corpus.runner import Options, concatenate, run
from prosect.corpus.subsets import chosen_subsets, indicator, label_of
from prosect.corpus.texts import Texts, read
from prosect.errors import ProsectError, UnsupportedModelError
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
        By "default", "default_test" and "learned": the share of the most frequent target; for the
        last two of the training texts' most frequent one.
    agreement
        [subset, subset] by head: the share of targets for which two subsets predict the same token,
        right or wrong; the mean over seeds for learned heads.
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

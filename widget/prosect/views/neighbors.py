"""Neighbors: which input embeddings a token's hidden states are nearest to, layer by layer."""

from __future__ import annotations

from typing import Any, get_args

import traitlets

from prosect.analyses.identity import Candidates
from prosect.views import payload
from prosect.views.payload import Array
from prosect.views.view import View


class Identifying(View):
    """A view with the neighbours in it.

    Attributes
    ----------
    candidates
        Among which embeddings neighbours are looked for: those of the text's own tokens,
        "sentence", or those of all words, "vocabulary".
    metric
        "cosine" or "l2".
    """

    candidates = traitlets.Unicode("sentence").tag(sync=True)
    metric = traitlets.Unicode("cosine").tag(sync=True)

    places = (*View.places, "candidates", "metric")

    @traitlets.validate("candidates")
    def _known_candidates(self, proposal: Any) -> str:
        if proposal.value not in get_args(Candidates):
            raise traitlets.TraitError(
                f"There are no candidates {proposal.value!r}: choose 'sentence' or 'vocabulary'."
            )
        return proposal.value

    @traitlets.validate("metric")
    def _known_metric(self, proposal: Any) -> str:
        if proposal.value not in payload.METRICS:
            raise traitlets.TraitError(
                f"There is no metric {proposal.value!r} here: choose 'cosine' or 'l2'."
            )
        return proposal.value

    def _is_open(self, array: Array) -> bool:
        return (array.candidates, array.metric) == (self.candidates, self.metric)


class Neighbors(Identifying):
    """The nearest input embeddings of the pinned token; without one, which tokens are recovered.

    Beside the places of every view it has ``candidates``, "sentence" or "vocabulary", and ``metric``,
    "cosine" or "l2".
    """

    name = "neighbors"
    shows = (payload.neighbors,)

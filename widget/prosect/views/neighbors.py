"""Neighbors: which input embeddings a token's hidden states are nearest to, layer by layer."""

from __future__ import annotations

from typing import Any, get_args

import traitlets

from prosect.analyses.identity import Candidates
from prosect.views import payload
from prosect.views.payload import Array
from prosect.views.view import View


class Identifying(View):
    """A view that shows neighbours.

    Attributes
    ----------
    candidates
        The embeddings that are searched: those of the text's own tokens, "sentence", or those of
        the whole vocabulary, "vocabulary".
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
                f"candidates must be 'sentence' or 'vocabulary', got {proposal.value!r}."
            )
        return proposal.value

    @traitlets.validate("metric")
    def _known_metric(self, proposal: Any) -> str:
        if proposal.value not in payload.METRICS:
            raise traitlets.TraitError(
                f"metric must be 'cosine' or 'l2' in views, got {proposal.value!r}."
            )
        return proposal.value

    def _is_open(self, array: Array) -> bool:
        return (array.candidates, array.metric) == (self.candidates, self.metric)


class Neighbors(Identifying):
    """The nearest input embeddings of the pinned token; without one, which tokens are recovered.

    In addition to the traits of every view it has ``candidates``, "sentence" or "vocabulary", and
    ``metric``, "cosine" or "l2".
    """

    name = "neighbors"
    shows = (payload.neighbors,)

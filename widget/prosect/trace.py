"""Trace: everything that one forward pass computed, and what can be asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.anatomy.stream import Record
from prosect.engines import identity, maps
from prosect.errors import ProsectError
from prosect.results import Identity, Terms, TokenMap
from prosect.tokens import Token

if TYPE_CHECKING:
    from prosect.lens import Lens
    from prosect.views import Explorer


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """One text through one model.

    Attributes
    ----------
    tokens
        What the model read, one :class:`~prosect.tokens.Token` a position.
    hidden
        [layer+1, token, d], as transformers' ``hidden_states``: 0 enters the first block, the last
        is after the final norm, where there is one. In float32, or float64 for a float64 model.
    attention
        [layer, head, target, source], the weights α.
    stream
        What the run did to the residual stream, step by step.
    """

    lens: Lens
    texts: tuple[str, ...]
    tokens: list[Token]
    hidden: Float[Tensor, "layer+1 token d"]
    attention: Float[Tensor, "layer head target source"]
    stream: tuple[Record, ...] = field(repr=False)

    def __repr__(self) -> str:
        return f"Trace({self.lens.name}: {len(self.tokens)} tokens, {self.texts[0][:40]!r})"

    def terms(self) -> Terms:
        """Split every embedding into its four terms (Mickus et al. 2022).

        Computed once and kept.

        Raises
        ------
        ReconstructionError
            If the terms do not add up to the hidden states; it names where they stop doing so.
        """
        return self._terms

    @cached_property
    def _terms(self) -> Terms:
        return Terms.of(self.stream, self.hidden)

    def map(self, kind: str = "attention") -> TokenMap:
        """How much each source token passes to each target token, by one of the kinds of map.

        Raises
        ------
        ProsectError
            If there is no such kind; the message lists those that there are.
        """
        if kind not in maps.KINDS:
            known = ", ".join(maps.KINDS)
            raise ProsectError(f"There is no kind of map {kind!r}: choose one of {known}.")
        return TokenMap.of(maps.KINDS[kind], self.attention)

    def identify(
        self, k: int = 10, metric: identity.Metric = "cosine", candidates: str = "sentence"
    ) -> Identity:
        """Find the input embeddings nearest to every hidden state (Brunner et al. 2020, section 3).

        Parameters
        ----------
        k
            How many neighbours; at most the number of tokens are returned.
        metric
            "cosine" or "l2".
        candidates
            "sentence": the embeddings of this text's own tokens, as they enter the first block.

        Raises
        ------
        ProsectError
            If an argument is not one of these.
        """
        if metric not in identity.METRICS:
            known = ", ".join(identity.METRICS)
            raise ProsectError(f"There is no metric {metric!r}: choose one of {known}.")
        if candidates != "sentence":
            raise ProsectError(f"There are no candidates {candidates!r}: choose 'sentence'.")
        if k < 1:
            raise ProsectError(f"k counts neighbours and must be at least 1, not {k}.")
        scores = identity.similarity(self.hidden, self.hidden[0], metric)
        ids, best = identity.nearest(scores, k)
        own = torch.arange(len(self.tokens), device=ids.device)
        return Identity(
            ids=ids,
            scores=-best if metric == "l2" else best,
            recovered=ids[..., 0] == own,
            metric=metric,
        )

    def explore(self, **traits: int | str) -> Explorer:
        """Open the linked views of this trace in one widget.

        Parameters
        ----------
        **traits
            Where to start: ``layer``, ``head``, ``target``, ``source``, ``kind``, ``theme``.
        """
        from prosect.views import Explorer  # views look down on traces, not the other way round

        return Explorer(self, **traits)

"""A run with the results of its analyses, each computed once, and checks of layers and positions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch

from prosect.anatomy.vocabulary import Anatomy
from prosect.capture.run import Run
from prosect.errors import ProsectError
from prosect.modes import in_plain_arithmetic
from prosect.validation import listed, whole_number

Result = TypeVar("Result")


@dataclass(frozen=True)
class Sizes:
    """The sizes of a run, from which the cost of an analysis is estimated.

    Attributes
    ----------
    layers, heads, tokens
        The numbers of layers, of heads per layer and of tokens.
    d, d_head, d_ff
        The dimensions of the stream, of a head's values and of a feed-forward.
    words
        The number of word embeddings.
    """

    layers: int
    heads: int
    tokens: int
    d: int
    d_head: int
    d_ff: int
    words: int

    @property
    def one_pass(self) -> float:
        """The multiplications of one forward pass, without those of the attention weights."""
        return 2.0 * self.layers * self.tokens * (4 * self.d**2 + 2 * self.d * self.d_ff)


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Analyses:
    """A run, with the results that have been computed from it.

    It is the argument of the functions in this package, and the only cache of their results.

    Attributes
    ----------
    run
        Everything that the forward pass computed.
    anatomy
        The parts of the model that was run.
    dtype
        The precision of the model.
    """

    run: Run
    anatomy: Anatomy
    dtype: torch.dtype
    _results: dict[tuple[Hashable, ...], Any] = field(default_factory=dict, init=False)

    def once(self, key: tuple[Hashable, ...], compute: Callable[[], Result]) -> Result:
        """The result with that key; it is computed at the first call."""
        if key not in self._results:
            self._results[key] = compute()
        return self._results[key]

    def known(self, key: tuple[Hashable, ...]) -> Any | None:
        """The result with that key, or None if it has not been computed."""
        return self._results.get(key)

    @cached_property
    def sizes(self) -> Sizes:
        """The sizes of the run."""
        layers, heads, tokens, _ = self.run.attention.shape
        layer = self.run.stream.layers[0]
        return Sizes(
            layers=layers,
            heads=heads,
            tokens=tokens,
            d=self.run.hidden.shape[-1],
            d_head=layer.attention.value.shape[-1],
            d_ff=layer.feed_forward.neurons.shape[-1],
            words=self.anatomy.words.num_embeddings,
        )

    # --- checks of layers, heads, states and positions --------------------------------------------

    def layer(self, layer: object) -> int:
        """The number of a layer, from 0.

        Raises
        ------
        ProsectError
            If there is no such layer.
        """
        number, count = whole_number(layer, "layer"), self.sizes.layers
        if not 0 <= number < count:
            raise ProsectError(f"layer must be from 0 to {count - 1}, got {number}.")
        return number

    def head(self, layer: object, head: object) -> tuple[int, int]:
        """The numbers of a layer and of a head in it, from 0.

        Raises
        ------
        ProsectError
            If there is no such layer or head.
        """
        layers, heads = self.sizes.layers, self.sizes.heads
        place = whole_number(layer, "layer"), whole_number(head, "head")
        if not (0 <= place[0] < layers and 0 <= place[1] < heads):
            raise ProsectError(
                f"layer must be from 0 to {layers - 1} and head from 0 to {heads - 1}, "
                f"got layer {place[0]} and head {place[1]}."
            )
        return place

    def state(self, state: object) -> int:
        """The number of a hidden state, from 0; a negative one counts from the end.

        Raises
        ------
        ProsectError
            If there is no such state.
        """
        number, count = whole_number(state, "state"), len(self.run.hidden)
        if not -count <= number < count:
            raise ProsectError(f"state must be from {-count} to {count - 1}, got {number}.")
        return number % count

    def positions(self, targets: Sequence[int] | None) -> list[int]:
        """Positions of tokens, from 0; negative ones count from the end, None means all tokens.

        Raises
        ------
        ProsectError
            If there is no such token, or the list is empty.
        """
        count = self.sizes.tokens
        if targets is None:
            return list(range(count))
        places = listed(targets, "targets")
        if not places:
            raise ProsectError("targets must have at least one position, got an empty list.")
        for target in places:
            if not -count <= target < count:
                raise ProsectError(f"Positions must be from {-count} to {count - 1}, got {target}.")
        return [target % count for target in places]

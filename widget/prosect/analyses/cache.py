"""One run and everything that was computed of it: each result once, and what the run has."""

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
    """The sizes of a run, from which the cost of an analysis follows.

    Attributes
    ----------
    layers, heads, tokens
        Of the run.
    d, d_head, d_ff
        The widths of the stream, of a head's values and of a feed-forward.
    words
        How many word embeddings there are.
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
        """The multiplications of one forward pass, without those of tokens with tokens."""
        return 2.0 * self.layers * self.tokens * (4 * self.d**2 + 2 * self.d * self.d_ff)


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Analyses:
    """A run, with every result that was computed of it so far.

    The functions of this package take it. It is the one cache: results that are kept are kept here.

    Attributes
    ----------
    run
        What the forward pass computed.
    anatomy
        The parts of the stack that was run.
    dtype
        The precision of the model.
    """

    run: Run
    anatomy: Anatomy
    dtype: torch.dtype
    _results: dict[tuple[Hashable, ...], Any] = field(default_factory=dict, init=False)

    def once(self, key: tuple[Hashable, ...], compute: Callable[[], Result]) -> Result:
        """The result with that key, computed if it is not there yet."""
        if key not in self._results:
            self._results[key] = compute()
        return self._results[key]

    def known(self, key: tuple[Hashable, ...]) -> Any | None:
        """The result with that key, if it is there already."""
        return self._results.get(key)

    @cached_property
    def sizes(self) -> Sizes:
        """How large the run is."""
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

    # --- places in the run, as they are asked for -------------------------------------------------

    def layer(self, layer: object) -> int:
        """The number of a layer, from 0.

        Raises
        ------
        ProsectError
            If there is no such layer.
        """
        number, count = whole_number(layer, "layer"), self.sizes.layers
        if not 0 <= number < count:
            raise ProsectError(f"There is no layer {number}: layers count from 0 to {count - 1}.")
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
                f"There is no head {place[1]} in layer {place[0]}: "
                f"layers count from 0 to {layers - 1}, heads from 0 to {heads - 1}."
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
            raise ProsectError(f"There is no state {number}: states count from 0 to {count - 1}.")
        return number % count

    def positions(self, targets: Sequence[int] | None) -> list[int]:
        """The positions of tokens, from 0; negative ones count from the end, None is all of them.

        Raises
        ------
        ProsectError
            If there is no such token, or an empty list was given.
        """
        count = self.sizes.tokens
        if targets is None:
            return list(range(count))
        places = listed(targets, "targets")
        if not places:
            raise ProsectError("There are no targets: name at least one, or leave targets out.")
        for target in places:
            if not -count <= target < count:
                raise ProsectError(
                    f"There is no token {target}: positions count from 0 to {count - 1}."
                )
        return [target % count for target in places]

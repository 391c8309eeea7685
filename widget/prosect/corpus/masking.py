"""Which tokens of a text are predicted, from where, and what the model reads in their place."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from prosect.errors import ProsectError, UnsupportedModelError
from prosect.lens import Lens
from prosect.tokens import Token, ordinary_ids
from prosect.validation import whole_number


@dataclass(frozen=True)
class Masking:
    """How tokens are chosen and hidden, as in BERT's training (Devlin et al. 2019).

    Special tokens and tokens that are unknown to the tokenizer are neither predicted nor drawn.

    Attributes
    ----------
    share
        Of a text's tokens that are predicted; at least one.
    masked, random
        Of those: how many are hidden by the mask token, and how many by a token drawn from the
        vocabulary; the others stay. Not for causal models, from which nothing has to be hidden.
    seed
        Of the choice. It also depends on the text, and on nothing else: not on its place.

    Raises
    ------
    ProsectError
        If a share is out of range.
    """

    share: float = 0.15
    masked: float = 0.8
    random: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("share", "masked", "random"):
            value = getattr(self, name)
            if not isinstance(value, Real) or isinstance(value, bool):
                raise ProsectError(f"{name} must be a number, not {value!r}.")
        whole_number(self.seed, "seed")
        if not 0 < self.share <= 1:
            raise ProsectError(f"share must be above 0 and at most 1, not {self.share}.")
        if not (self.masked >= 0 and self.random >= 0 and self.masked + self.random <= 1 + 1e-9):
            raise ProsectError(
                "masked and random are shares of the chosen tokens, of 0 or more and at most 1 "
                f"together, not {self.masked} and {self.random}."
            )


@dataclass(frozen=True)
class Chosen:
    """What is predicted in a text.

    Attributes
    ----------
    positions
        Of the states that predict, in order.
    targets
        The index in the vocabulary that each should predict.
    replacements
        What the model reads in the place of some tokens (:meth:`prosect.Lens.trace`).
    """

    positions: list[int]
    targets: list[int]
    replacements: dict[int, int]


class Chooser:
    """Chooses and hides tokens of the texts that one model reads.

    Raises
    ------
    UnsupportedModelError
        If tokens have to be masked and the tokenizer has no mask.
    """

    def __init__(self, lens: Lens, masking: Masking) -> None:
        tokenizer: Any = lens.tokenizer
        self._lens, self._masking = lens, masking
        self._causal = lens.anatomy.causal
        self._unknown = tokenizer.unk_token_id
        self._mask = tokenizer.mask_token_id
        self._ordinary = np.array(ordinary_ids(tokenizer))
        if not self._causal and masking.masked and self._mask is None:
            raise UnsupportedModelError(
                f"The tokenizer of {lens.name} has no mask token, so no token can be hidden: "
                "use a masked or a causal model, or masked=0."
            )

    def __call__(self, text: str) -> Chosen:
        """Choose and hide tokens of a text.

        In a masked model each chosen token is predicted from its own state, in a causal model from
        the state before it; there, a token that is read first is not predicted.
        """
        tokens = self._lens.tokens(text)
        places = self._predictable(tokens)
        random = np.random.default_rng(content(f"{self._masking.seed} {text}"))
        if not places:
            return Chosen([], [], {})
        count = max(1, int(self._masking.share * len(places) + 0.5))
        chosen = sorted(random.choice(places, count, replace=False).tolist())
        targets = [tokens[place].id for place in chosen]
        if self._causal:
            return Chosen([place - 1 for place in chosen], targets, {})
        return Chosen(chosen, targets, self._hidden(chosen, random))

    def _predictable(self, tokens: Sequence[Token]) -> list[int]:
        return [
            place
            for place, token in enumerate(tokens)
            if not token.special and token.id != self._unknown and (place or not self._causal)
        ]

    def _hidden(self, chosen: Sequence[int], random: np.random.Generator) -> dict[int, int]:
        replacements = {}
        masked = self._masking.masked
        for place, lot in zip(chosen, random.random(len(chosen)).tolist(), strict=True):
            if lot < masked:
                replacements[place] = self._mask
            elif lot < masked + self._masking.random:
                replacements[place] = int(random.choice(self._ordinary))
        return replacements


def content(text: str) -> int:
    """A number of 64 bits for a text, whatever its white space: the same in every process."""
    words = " ".join(text.split())
    digest = hashlib.blake2b(words.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little")

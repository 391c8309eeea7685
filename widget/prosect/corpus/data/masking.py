"""Choose the tokens of a text to predict, the states that predict them, and the masked input."""

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
    """How target tokens are chosen and masked, as in the training of BERT (Devlin et al. 2019).

    Special and unknown tokens are neither predicted nor drawn as replacements.

    Attributes
    ----------
    share
        The share of a text's tokens that are predicted; at least one token is.
    masked, random
        The shares of the target tokens that are replaced by the mask token, and by a random token
        of the vocabulary; the others are left as they are. Causal models read the text unchanged.
    seed
        The seed of the choice, which depends on it and on the text, not on the text's place.

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
                raise ProsectError(f"{name} must be a number, got {value!r}.")
        whole_number(self.seed, "seed")
        if not 0 < self.share <= 1:
            raise ProsectError(f"share must be above 0 and at most 1, got {self.share}.")
        if not (self.masked >= 0 and self.random >= 0 and self.masked + self.random <= 1 + 1e-9):
            raise ProsectError(
                "masked and random must be at least 0 and their sum at most 1, "
                f"got {self.masked} and {self.random}."
            )


@dataclass(frozen=True)
class MaskedText:
    """The prediction targets of a text and the replacements in the model's input.

    Attributes
    ----------
    positions
        The positions of the states that predict, in order.
    targets
        The vocabulary id that each of them should predict.
    replacements
        The id that the model reads at some positions (:meth:`prosect.Lens.trace`).
    """

    positions: list[int]
    targets: list[int]
    replacements: dict[int, int]


class Masker:
    """Chooses and masks the target tokens of the texts that one model reads.

    Raises
    ------
    UnsupportedModelError
        If tokens have to be masked and the tokenizer has no mask token.
    """

    def __init__(self, lens: Lens, masking: Masking) -> None:
        tokenizer: Any = lens.tokenizer
        self._lens, self._masking = lens, masking
        self._causal = lens.anatomy.causal
        self._unknown_id = tokenizer.unk_token_id
        self._mask_id = tokenizer.mask_token_id
        self._ordinary_ids = np.array(ordinary_ids(tokenizer))
        if not self._causal and masking.masked and self._mask_id is None:
            raise UnsupportedModelError(
                f"The tokenizer of {lens.name} has no mask token: "
                "use a masked or a causal model, or masked=0."
            )

    def __call__(self, text: str) -> MaskedText:
        """Choose and mask target tokens of a text.

        A masked model predicts each target from its own state, a causal model from the state before
        it; there the first token is never a target.
        """
        tokens = self._lens.tokens(text)
        candidates = self._candidates(tokens)
        generator = np.random.default_rng(content_hash(f"{self._masking.seed} {text}"))
        if not candidates:
            return MaskedText([], [], {})
        count = max(1, int(self._masking.share * len(candidates) + 0.5))
        chosen = sorted(generator.choice(candidates, count, replace=False).tolist())
        targets = [tokens[position].id for position in chosen]
        if self._causal:
            return MaskedText([position - 1 for position in chosen], targets, {})
        return MaskedText(chosen, targets, self._replacements(chosen, generator))

    def _candidates(self, tokens: Sequence[Token]) -> list[int]:
        return [
            position
            for position, token in enumerate(tokens)
            if not token.special and token.id != self._unknown_id and (position or not self._causal)
        ]

    def _replacements(
        self, positions: Sequence[int], generator: np.random.Generator
    ) -> dict[int, int]:
        replacements = {}
        masked = self._masking.masked
        draws = generator.random(len(positions)).tolist()
        for position, draw in zip(positions, draws, strict=True):
            if draw < masked:
                replacements[position] = self._mask_id
            elif draw < masked + self._masking.random:
                replacements[position] = int(generator.choice(self._ordinary_ids))
        return replacements


def content_hash(text: str) -> int:
    """A 64-bit hash of a text that ignores differences in white space, equal in every process."""
    words = " ".join(text.split())
    digest = hashlib.blake2b(words.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little")

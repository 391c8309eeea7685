"""What the engines find, as small objects: tensors with stated shapes and a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from prosect.anatomy.stream import Record
from prosect.anatomy.vocabulary import TERMS
from prosect.engines import terms as engine
from prosect.engines.maps import Kind
from prosect.errors import ReconstructionError


def tolerance(dtype: torch.dtype) -> float:
    """How far a decomposition may be off, relatively, before it is an error."""
    return 1e-9 if dtype == torch.float64 else 1e-4


@dataclass(frozen=True, eq=False, repr=False)
class Terms:
    """The four terms of every hidden state; they sum to it.

    The attention weights and the spreads of the norms are those of the run, so the split is exact
    but not causal: a term says who wrote last, not where the information came from.

    Attributes
    ----------
    values
        [term, layer+1, token, d], terms in the order of ``names``.
    hidden
        [layer+1, token, d], what they sum to.
    error
        The certificate: max over layers and tokens of |Σ terms − e| / |e|.
    """

    values: Float[Tensor, "term layer+1 token d"]
    hidden: Float[Tensor, "layer+1 token d"]
    error: float

    names = TERMS

    @classmethod
    def of(cls, stream: Sequence[Record], hidden: Float[Tensor, "layer+1 token d"]) -> Terms:
        """Decompose a run.

        Raises
        ------
        ReconstructionError
            If the terms do not add up; the message names the step where they stop doing so.
        """
        values = engine.four_terms(stream)
        error = float(engine.reconstruction_error(values.sum(0), hidden).max())
        allowed = tolerance(hidden.dtype)
        if not error <= allowed:
            step = engine.first_break(stream, allowed)
            raise ReconstructionError(
                f"The terms miss the hidden states by {error:.1e} (relative), first at the {step}: "
                "look for a hook or an adapter there that changes what the model computes."
            )
        return cls(values, hidden, error)

    def __repr__(self) -> str:
        layers, tokens, d = self.hidden.shape
        return f"Terms({' + '.join(self.names)}: [{layers}, {tokens}, {d}], error {self.error:.1e})"

    @property
    def input(self) -> Float[Tensor, "layer+1 token d"]:
        """i: the sum of the input embeddings, rescaled by every norm since."""
        return self.values[0]

    @property
    def attention(self) -> Float[Tensor, "layer+1 token d"]:
        """h: what the attention heads wrote, without value and output biases."""
        return self.values[1]

    @property
    def feed_forward(self) -> Float[Tensor, "layer+1 token d"]:
        """f: what the feed-forwards wrote, without their output bias."""
        return self.values[2]

    @property
    def bias(self) -> Float[Tensor, "layer+1 token d"]:
        """c: all biases, and the means that norms subtract."""
        return self.values[3]

    def importance(self) -> Float[Tensor, "term layer+1 token"]:
        """μ(e, a) = <e, a> / |e|² of each term: sums to 1 over terms, may be below 0 or above 1."""
        return self._importance

    @cached_property
    def _importance(self) -> Tensor:
        return engine.importance(self.values, self.hidden)

    def norm(self) -> Float[Tensor, "term layer+1 token"]:
        """|a| / |e| of each term: its length in units of the embedding's."""
        return engine.norm_ratio(self.values, self.hidden)

    def cosine(self) -> Float[Tensor, "term layer+1 token"]:
        """Cosine of each term with the embedding; 0 where the term is zero."""
        return engine.cosine(self.values, self.hidden)


@dataclass(frozen=True, eq=False, repr=False)
class TokenMap:
    """A token-to-token map of every layer.

    Attributes
    ----------
    values
        [layer, head, target, source], or [layer, target, source] for kinds without heads.
    kind
        The name of the kind.
    axes
        The names of the axes of ``values``.
    error
        The certificate. For attention weights: how far a row's sum is from 1 at most.
    """

    values: Tensor
    kind: str
    axes: tuple[str, ...]
    error: float

    @classmethod
    def of(cls, kind: Kind, attention: Float[Tensor, "layer head target source"]) -> TokenMap:
        """A kind of map of a run."""
        error = float((attention.sum(-1) - 1).abs().max())
        return cls(attention, kind.name, ("layer", "head", "target", "source"), error)

    def __repr__(self) -> str:
        axes = ", ".join(f"{a} {n}" for a, n in zip(self.axes, self.values.shape, strict=True))
        return f"TokenMap({self.kind}: {axes}, error {self.error:.1e})"


@dataclass(frozen=True, eq=False, repr=False)
class Identity:
    """Which input embeddings every hidden state is nearest to.

    Attributes
    ----------
    ids
        [layer+1, token, k], positions of the neighbours in the text, nearest first. Where
        candidates are equal, the token itself comes first.
    scores
        [layer+1, token, k], cosine similarities, or Euclidean distances for the metric "l2".
    recovered
        [layer+1, token], whether the token's own input embedding is the nearest.
    """

    ids: Int[Tensor, "layer+1 token k"]
    scores: Float[Tensor, "layer+1 token k"]
    recovered: Bool[Tensor, "layer+1 token"]
    metric: str

    def __repr__(self) -> str:
        share = self.recovered.float().mean(-1)
        first, last = f"{float(share[0]):.0%}", f"{float(share[-1]):.0%}"
        return (
            f"Identity({self.metric}: {first} of tokens recovered at layer 0, {last} at the last)"
        )

"""What the engines find, as small objects: tensors with stated shapes and a certificate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from prosect.analyses.certificate import certified, certify
from prosect.anatomy.vocabulary import Term
from prosect.engines import splits
from prosect.engines import terms as engine
from prosect.engines.linear import Centring
from prosect.engines.records import FeedForwardRecord, Stream
from prosect.engines.splits import By, Part
from prosect.modes import in_plain_arithmetic


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Decomposition:
    """Vectors split into parts that sum to them.

    Attributes
    ----------
    values
        [part, ..., d].
    whole
        [..., d], what they sum to.
    error
        The certificate: the largest |Σ parts − e| / |e|.
    """

    values: Float[Tensor, "part *axes d"]
    whole: Float[Tensor, "*axes d"]
    error: float

    def importance(self) -> Float[Tensor, "part *axes"]:
        """μ(e, a) = <e, a> / |e|² of each part: sums to 1 over parts, may be below 0 or above 1.

        0 for all parts of a vector that is zero.
        """
        return self._importance

    @cached_property
    def _importance(self) -> Tensor:
        return engine.importance(self.values, self.whole)

    def norm(self) -> Float[Tensor, "part *axes"]:
        """|a| / |e| of each part: its length in units of the embedding's."""
        return engine.norm_ratio(self.values, self.whole)

    def cosine(self) -> Float[Tensor, "part *axes"]:
        """Cosine of each part with the embedding; 0 where the part is zero."""
        return engine.cosine(self.values, self.whole)


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Terms(Decomposition):
    """The four terms of every hidden state; they sum to it.

    The attention weights and the spreads of the norms are those of the run, so the split is exact
    but not causal: a term says who wrote last, not where the information came from.

    Attributes
    ----------
    values
        [term, layer+1, token, d], terms in the order of ``names``.
    whole
        [layer+1, token, d], the hidden states.
    error
        The certificate: max over layers and tokens of |Σ terms − e| / |e|.
    names
        "input", "attention", "feed_forward", "bias"; a fifth, "source", in decoders that attend to
        another text.
    """

    names: tuple[Term, ...]

    @classmethod
    def of(
        cls,
        stream: Stream,
        hidden: Float[Tensor, "layer+1 token d"],
        names: tuple[Term, ...],
        dtype: torch.dtype,
        centring: Centring = "bias",
    ) -> Terms:
        """Decompose a run of a model of the given precision.

        Raises
        ------
        ReconstructionError
            If the terms do not add up; the message names the step where they stop doing so.
        """
        values = engine.terms_of(stream, names, centring)
        error = certify(values, hidden, stream, dtype)
        return cls(values, hidden, error, names)

    def __repr__(self) -> str:
        layers, tokens, d = self.whole.shape
        return f"Terms({' + '.join(self.names)}: [{layers}, {tokens}, {d}], error {self.error:.1e})"

    @property
    def input(self) -> Float[Tensor, "layer+1 token d"]:
        """i: the sum of the input embeddings, rescaled by every norm since."""
        return self.values[self.names.index("input")]

    @property
    def attention(self) -> Float[Tensor, "layer+1 token d"]:
        """h: what the attention heads wrote, without value and output biases."""
        return self.values[self.names.index("attention")]

    @property
    def feed_forward(self) -> Float[Tensor, "layer+1 token d"]:
        """f: what the feed-forwards wrote, without their output bias."""
        return self.values[self.names.index("feed_forward")]

    @property
    def bias(self) -> Float[Tensor, "layer+1 token d"]:
        """c: all biases, and the means that norms subtract."""
        return self.values[self.names.index("bias")]

    @property
    def source(self) -> Float[Tensor, "layer+1 token d"] | None:
        """What cross-attention wrote; None in models without it."""
        return self.values[self.names.index("source")] if "source" in self.names else None


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Parts(Decomposition):
    """One hidden state of some tokens, split finer than into terms.

    Attributes
    ----------
    values
        [part, target, d].
    whole
        [target, d], the hidden state of the targets.
    error
        The certificate: max over targets of |Σ parts − e| / |e|.
    labels
        What each part is.
    targets
        The positions of the tokens.
    """

    labels: list[Part]
    targets: list[int]

    @classmethod
    def of(
        cls,
        stream: Stream,
        hidden: Float[Tensor, "layer+1 token d"],
        dtype: torch.dtype,
        by: By,
        state: int,
        targets: list[int],
        centring: Centring = "bias",
    ) -> Parts:
        """Split ``hidden[state]`` of the targets.

        Raises
        ------
        ReconstructionError
            If the parts do not add up; the message names the step where they stop doing so.
        """
        places = torch.tensor(targets, device=hidden.device)
        labels, values = splits.split(stream, by, state, places, centring)
        whole = hidden[state, places]
        return cls(values, whole, certify(values, whole, stream, dtype), labels, targets)

    def __repr__(self) -> str:
        part, target, d = self.values.shape
        return f"Parts({part} parts of {target} tokens: [{part}, {target}, {d}], error {self.error:.1e})"

    def select(self, **wanted: object) -> Float[Tensor, "part target d"]:
        """The parts whose labels agree, as in ``select(term="attention", layer=3)``."""
        kept = [
            i
            for i, label in enumerate(self.labels)
            if all(getattr(label, name) == value for name, value in wanted.items())
        ]
        return self.values[kept]


@dataclass(frozen=True, eq=False, repr=False)
class Neurons:
    """What single neurons of one feed-forward wrote to one token.

    Attributes
    ----------
    ids
        [k], the neurons that wrote most, by length.
    values
        [k, d], what each wrote: its activation times its row of W_out.
    rest
        [d], what all the others wrote together.
    error
        The certificate: |Σ values + rest − f| / |f|, f the sublayer's output without its bias.
    """

    ids: Int[Tensor, "k"]
    values: Float[Tensor, "k d"]
    rest: Float[Tensor, "d"]
    error: float

    @classmethod
    def of(cls, record: FeedForwardRecord, token: int, k: int, dtype: torch.dtype) -> Neurons:
        """Split what a feed-forward wrote to one token."""
        ids, values, rest = splits.neurons_of(record, token, k)
        written = record.output[token]
        if record.bias is not None:
            written = written - record.bias
        length = torch.linalg.vector_norm
        gap = length(values.sum(0) + rest - written)
        # nothing written is split exactly into nothings
        error = float(gap / length(written)) if bool(gap > 0) else 0.0
        return cls(ids, values, rest, certified(error, record.name, dtype))

    def __repr__(self) -> str:
        return f"Neurons({', '.join(map(str, self.ids.tolist()))}: error {self.error:.1e})"

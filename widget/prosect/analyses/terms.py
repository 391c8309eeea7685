"""Hidden states as sums of four terms, of finer parts, or of contributions of single neurons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from prosect.analyses.cache import Analyses
from prosect.analyses.certificate import certified, certify
from prosect.anatomy.vocabulary import Term
from prosect.engines import splits
from prosect.engines import terms as engine
from prosect.engines.linear import Centring
from prosect.engines.records import FeedForwardRecord, Stream
from prosect.engines.splits import By, Part
from prosect.errors import ProsectError
from prosect.modes import in_plain_arithmetic
from prosect.validation import check_count, check_known

MEMORY = 2**31
"""The largest number of bytes for the parts of one split."""


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
    but not causal: a term says which component wrote a part, not where its information came from.

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
    """One hidden state of some tokens, split into parts that are finer than the terms.

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
    """The contributions of single neurons of one feed-forward to one token.

    Attributes
    ----------
    ids
        [k], the neurons with the longest contributions.
    values
        [k, d], the contributions: the activation of each neuron times its row of W_out.
    rest
        [d], the sum of the contributions of all other neurons.
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
        # 0/0: where nothing is written, the split into zeros is exact
        error = float(gap / length(written)) if bool(gap > 0) else 0.0
        return cls(ids, values, rest, certified(error, record.name, dtype))

    def __repr__(self) -> str:
        return f"Neurons({', '.join(map(str, self.ids.tolist()))}: error {self.error:.1e})"


# --- of a run -----------------------------------------------------------------------------------


def terms(
    analyses: Analyses,
    by: By | None = None,
    state: int = -1,
    targets: Sequence[int] | None = None,
    centring: Centring = "bias",
) -> Terms | Parts:
    """Split every hidden state into its terms, or one hidden state into finer parts.

    Parameters
    ----------
    by
        None: the terms of every hidden state, computed once. Else the parts of one hidden state:
        "layer", what each sublayer of each layer wrote; "head", attention by head too; "source", each
        head's part from each source token too; "norm", the bias term by norm and sublayer;
        "embedding", the input by kind of embedding.
    state
        The hidden state that is split into finer parts; the last by default.
    targets
        The positions of its tokens; all by default. With "source" there are layers × heads × tokens
        parts per target, so choose a few targets in long texts.
    centring
        "bias": the means that norms subtract belong to the bias term (Mickus et al. 2022). "each":
        every part loses its own mean (Kobayashi et al. 2021). The sum is the same.

    Raises
    ------
    ReconstructionError
        If the parts do not add up to the hidden states; it names where they stop doing so.
    ProsectError
        If an argument is invalid, or the parts would not fit in memory.
    """
    check_known(centring, get_args(Centring), "centring")
    run, dtype = analyses.run, analyses.dtype
    if by is None:
        if targets is not None or state != -1:
            raise ProsectError(
                "state and targets can only be given with by: without it, all states are split."
            )
        return four_terms(analyses, centring)
    check_known(by, get_args(By), "by")
    number, places = analyses.state(state), analyses.positions(targets)
    if by == "source":
        _check_memory(analyses, len(places))
    return Parts.of(run.stream, run.hidden, dtype, by, number, places, centring)


def four_terms(analyses: Analyses, centring: Centring = "bias") -> Terms:
    """The terms of every hidden state; those of the usual centring are computed once."""
    run, names = analyses.run, analyses.anatomy.terms

    def compute() -> Terms:
        return Terms.of(run.stream, run.hidden, names, analyses.dtype, centring)

    return analyses.once(("terms",), compute) if centring == "bias" else compute()


def neurons(analyses: Analyses, layer: int, token: int, k: int = 10) -> Neurons:
    """Split what the feed-forward of one layer wrote to one token by neuron.

    Parameters
    ----------
    layer
        From 0.
    token
        The token's position.
    k
        How many neurons to name; all the others are one exact rest.

    Raises
    ------
    ProsectError
        If there is no such layer or token, or k is not at least 1.
    """
    (position,) = analyses.positions([token])
    record = analyses.run.stream.layers[analyses.layer(layer)].feed_forward
    check_count(k, "k")
    return Neurons.of(record, position, k, analyses.dtype)


def _check_memory(analyses: Analyses, targets: int) -> None:
    sizes, vector = analyses.sizes, analyses.run.hidden[-1, 0]
    needed = sizes.layers * sizes.heads * sizes.tokens * targets * vector.nbytes
    if needed > MEMORY:
        raise ProsectError(
            f"The parts of {targets} targets by source would take {needed / 2**30:.1f} GiB: "
            f"name at most {max(1, int(MEMORY * targets // needed))} targets."
        )

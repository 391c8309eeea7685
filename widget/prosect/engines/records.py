"""What one run did to the residual stream, as records that the engines read: tensors only.

The stream starts as the sum of the embeddings; every record after that is one step of the
computation, and a :class:`StateRecord` marks where the stream equals one of the model's hidden
states. Everything is of one text: no batch axis. Layers count from 0; layer −1 is the embeddings.

Activations and vectors belong to the record. Matrices stay where the model keeps them: a
:class:`Weight` reads one when it is needed and refuses if it has changed since the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from prosect.errors import StaleTraceError

Term = Literal["input", "attention", "feed_forward", "bias", "source"]
TERMS: tuple[Term, ...] = ("input", "attention", "feed_forward", "bias")
"""The four terms of Mickus et al. (2022); decoders with cross-attention have "source" as a fifth."""

Activation = Callable[[Tensor], Tensor]
Turn = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Rotary positions: from x [..., token, d_head] and the two tables that the model computed."""

SAMPLES = 64
"""How many entries of a weight are kept to recognise it by."""


class Weight:
    """A matrix of the model, [in, out], as it was in the run.

    Parameters
    ----------
    name
        The model's name of the parameter, for messages.
    tensors
        What the matrix is made from: one parameter, or several in a layer with an adapter.
    make
        From these tensors the matrix. It must not read anything else that can change.
    """

    __slots__ = ("_make", "_stamps", "_tensors", "name")

    def __init__(
        self, name: str, tensors: tuple[Tensor, ...], make: Callable[..., Tensor] | None = None
    ) -> None:
        self.name = name
        self._tensors = tuple(tensor.detach() for tensor in tensors)
        self._make = make
        self._stamps = [stamp_of(tensor) for tensor in self._tensors]

    def __call__(self, like: Tensor) -> Float[Tensor, "d_in d_out"]:
        """The matrix, on the device and in the precision of another tensor.

        Raises
        ------
        StaleTraceError
            If one of its tensors was changed after the run.
        """
        self._check()
        return self._matrix().to(like)

    def _check(self) -> None:
        if any(stamp_of(t) != stamp for t, stamp in zip(self._tensors, self._stamps, strict=True)):
            raise StaleTraceError(
                f"The weight {self.name!r} was changed after this text was traced: "
                "trace the text again."
            )

    def column(self, index: int, like: Tensor) -> Float[Tensor, "d_in"]:
        """One column of the matrix, without a copy of it all; raises as calling does."""
        self._check()
        return self._matrix()[:, index].to(like)

    @property
    def shape(self) -> tuple[int, int]:
        """d_in and d_out."""
        d_in, d_out = self._matrix().shape
        return d_in, d_out

    def _matrix(self) -> Tensor:
        made = self._tensors[0] if self._make is None else self._make(*self._tensors)
        return made.detach()


def stamp_of(tensor: Tensor) -> tuple[int | None, tuple[float, ...]]:
    """The version of a tensor, and some of its entries: writes through ``.data`` have no version.

    A tensor has changed if its stamp has.
    """
    version = None if tensor.is_inference() else tensor._version
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.numel() == 0:
        return version, ()
    return version, tuple(tensor[_sampled(tensor.shape)].flatten().tolist())


@cache
def _sampled(shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Places all over a tensor, each axis rolled so that they are not all on one diagonal."""
    axes = [torch.linspace(0, size - 1, SAMPLES, dtype=torch.float64).long() for size in shape]
    return tuple(axis.roll(i * SAMPLES // 3) for i, axis in enumerate(axes))


@dataclass(frozen=True, eq=False)
class Affine:
    """A linear map x W + b."""

    weight: Weight
    bias: Float[Tensor, "d_out"] | None

    def __call__(self, x: Float[Tensor, "*axes d_in"]) -> Float[Tensor, "*axes d_out"]:
        """Apply it, in the precision of x."""
        out = x @ self.weight(x)
        return out if self.bias is None else out + self.bias.to(x)


@dataclass(frozen=True, eq=False)
class NormRule:
    """gain ⊙ (x − mean) / σ + bias, σ = sqrt(variance + ε).

    ``centred``: LayerNorm. Without centring nothing is subtracted and σ is the root mean square
    (RMSNorm). Gain and bias are None where the norm has none.
    """

    centred: bool
    gain: Float[Tensor, "d"] | None
    bias: Float[Tensor, "d"] | None
    epsilon: float


@dataclass(frozen=True, eq=False)
class NormRecord:
    """A norm as it acted on every token of the run: its rule, and the mean and variance it found.

    ``mean`` is None in RMSNorm. ``layer`` is that of its block; −1 before the first block, None after
    the last.
    """

    name: str
    layer: int | None
    rule: NormRule
    mean: Float[Tensor, "token 1"] | None
    variance: Float[Tensor, "token 1"]

    @property
    def gain(self) -> Float[Tensor, "d"] | None:
        """The factor of each dimension, g."""
        return self.rule.gain

    @property
    def bias(self) -> Float[Tensor, "d"] | None:
        """What is added at the end, b."""
        return self.rule.bias

    @cached_property
    def std(self) -> Float[Tensor, "token 1"]:
        """The spread σ that the norm divides by."""
        return (self.variance + self.rule.epsilon).sqrt()

    def at(self, targets: slice | Tensor) -> NormRecord:
        """The norm as it acted on some of the tokens."""
        mean = None if self.mean is None else self.mean[targets]
        return NormRecord(self.name, self.layer, self.rule, mean, self.variance[targets])


@dataclass(frozen=True, eq=False)
class ProjectionRecord:
    """The whole stream x became x W + b."""

    name: str
    map: Affine


@dataclass(frozen=True, eq=False)
class ScoresRecord:
    """How attention scores come about: <query, key> · scale, each projected, normed and turned.

    Attributes
    ----------
    query, key
        The maps W_Q, b_Q and W_K, b_K.
    scale
        What the product is multiplied by.
    query_norm, key_norm
        The norms of query and key, over a head's dimensions or over all of them.
    turn
        Rotary positions, with ``tables``: what the model computed for them.
    softcap
        c where the scores become c · tanh(score / c).
    """

    query: Affine
    key: Affine
    scale: float
    query_norm: NormRule | None = None
    key_norm: NormRule | None = None
    turn: Turn | None = None
    tables: tuple[Tensor, Tensor] | None = None
    softcap: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class WriteRecord:
    """A part was added to the stream.

    Attributes
    ----------
    name
        For messages, as in "layer 1 attention".
    term
        The term of the stream that it belongs to.
    layer
        From 0; −1 for the embeddings.
    output
        What was computed, its bias included, before the norm ``after``.
    bias
        How much of it belongs to no token.
    before
        The norm of the sublayer's input, where it has one of its own.
    after
        The norm that the output went through before it was added.
    """

    name: str
    term: Term
    layer: int
    output: Float[Tensor, "token d"]
    bias: Float[Tensor, "d"] | None = None
    before: NormRecord | None = None
    after: NormRecord | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class EmbeddingRecord(WriteRecord):
    """The sum of the embeddings; ``pieces`` are those that were summed, by name."""

    pieces: Mapping[str, Float[Tensor, "token d"]]


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionRecord(WriteRecord):
    """What an attention sublayer wrote: context W_O + b_O, context = α value for each head.

    Attributes
    ----------
    context
        The heads' outputs side by side, before W_O.
    output_map
        W_O as a matrix, and b_O.
    alpha
        The attention weights.
    value
        The value vectors of the heads that the model stores; heads of the context share them in
        groups.
    value_map
        W_V and b_V.
    read
        What the queries were made of; keys and values too, but for cross-attention.
    scores
        The rule of the scores; None where they have no simple form.
    source_key
        In cross-attention, the keys of the other text.
    visible
        Which sources a target may attend to, where not all: those before it in a causal model,
        those near it within a sliding window.
    """

    context: Float[Tensor, "token d_heads"]
    output_map: Affine
    alpha: Float[Tensor, "head target source"]
    value: Float[Tensor, "kv_head source d_head"]
    value_map: Affine
    read: Float[Tensor, "target d_in"]
    scores: ScoresRecord | None
    source_key: Float[Tensor, "kv_head source d_head"] | None = None
    visible: Bool[Tensor, "target source"] | None = None

    @property
    def heads(self) -> int:
        """How many attention heads there are."""
        return len(self.alpha)

    @property
    def kv_heads(self) -> int:
        """How many heads of keys and values there are."""
        return len(self.value)

    @property
    def value_bias(self) -> Float[Tensor, "kv_head d_head"] | None:
        """b_V by head, where there is one."""
        bias = self.value_map.bias
        return None if bias is None else bias.unflatten(0, (self.kv_heads, -1))


@dataclass(frozen=True, eq=False, kw_only=True)
class FeedForwardRecord(WriteRecord):
    """What a feed-forward wrote: neurons W_out + b_out, neurons = φ(u), or φ(u) ⊙ v if gated.

    Attributes
    ----------
    read
        x, after the norm of the sublayer's input where it has one.
    u, v
        x W_in + b_in and, in a gated feed-forward, x W_gate + b_gate, as the run computed them.
    inner, gate
        W_in and b_in, W_gate and b_gate.
    activation
        φ.
    neurons
        What enters W_out.
    output_map
        W_out and b_out.
    parallel
        Whether it reads the stream that entered the block, as attention does (GPT-J), and not what
        attention has added to it.
    """

    read: Float[Tensor, "token d_in"]
    u: Float[Tensor, "token d_ff"]
    inner: Affine
    activation: Activation
    neurons: Float[Tensor, "token d_ff"]
    output_map: Affine
    v: Float[Tensor, "token d_ff"] | None = None
    gate: Affine | None = None
    parallel: bool = False


@dataclass(frozen=True, eq=False)
class StateRecord:
    """Here the stream is ``hidden[index]``, a hidden state that the model itself reported."""

    index: int
    hidden: Float[Tensor, "token d"]


StreamStep = NormRecord | ProjectionRecord | AttentionRecord | FeedForwardRecord
LayerStep = NormRecord | AttentionRecord | FeedForwardRecord
Record = StreamStep | EmbeddingRecord | StateRecord


@dataclass(frozen=True, eq=False)
class LayerRecord:
    """What one block did.

    Attributes
    ----------
    x
        The stream that entered it.
    attention
        Its self-attention, which comes first.
    following
        Every other step, in order.
    y
        The stream that left it. None for the last block of a model with a final norm: the model
        reports that stream after the norm.
    """

    x: Float[Tensor, "token d"]
    attention: AttentionRecord
    following: tuple[LayerStep, ...]
    y: Float[Tensor, "token d"] | None

    @property
    def feed_forward(self) -> FeedForwardRecord:
        """Its feed-forward."""
        return next(step for step in self.following if isinstance(step, FeedForwardRecord))

    @property
    def last_norm(self) -> NormRecord | None:
        """The norm of the stream after the feed-forward, where there is one."""
        last = self.following[-1]
        return last if isinstance(last, NormRecord) else None


@dataclass(frozen=True, eq=False)
class Stream:
    """One run: the embeddings, then every step up to the last hidden state."""

    start: EmbeddingRecord
    steps: tuple[StreamStep | StateRecord, ...]

    def __iter__(self) -> Iterator[Record]:
        """Every record in order."""
        yield self.start
        yield from self.steps

    @cached_property
    def states(self) -> list[StateRecord]:
        """The hidden states."""
        return [step for step in self.steps if isinstance(step, StateRecord)]

    @cached_property
    def attentions(self) -> list[AttentionRecord]:
        """Every attention sublayer, cross-attention too."""
        return [step for step in self.steps if isinstance(step, AttentionRecord)]

    @cached_property
    def feed_forwards(self) -> list[FeedForwardRecord]:
        """Every feed-forward sublayer."""
        return [step for step in self.steps if isinstance(step, FeedForwardRecord)]

    @cached_property
    def layers(self) -> list[LayerRecord]:
        """The run cut into its blocks."""
        count = len(self.states) - 1
        has_final_norm = any(isinstance(s, NormRecord) and s.layer is None for s in self.steps)
        found = []
        for layer in range(count):
            first, *following = (
                step
                for step in self.steps
                if isinstance(step, NormRecord | AttentionRecord | FeedForwardRecord)
                and step.layer == layer
            )
            if not isinstance(first, AttentionRecord):
                raise TypeError(f"Layer {layer} does not start with attention: {first.name}.")
            left = None if has_final_norm and layer == count - 1 else self.states[layer + 1].hidden
            found.append(LayerRecord(self.states[layer].hidden, first, tuple(following), left))
        return found


@dataclass(frozen=True, eq=False)
class HeadRecord:
    """The logits of a last hidden state: decoder(norm(activation(dense(x)))) · scale.

    Before any cap that the model puts on them. A linear head has only the decoder.

    Attributes
    ----------
    decoder
        The map to the vocabulary.
    dense, activation, norm
        The transform in front of it, where there is one.
    outlet
        A projection of the hidden state before all else (OPT).
    scale
        What the hidden state is multiplied by (T5).
    bias
        What is added at the end beside the decoder's own (BART).
    """

    decoder: Affine
    dense: Affine | None = None
    activation: Activation | None = None
    norm: NormRule | None = None
    outlet: Affine | None = None
    scale: float = 1.0
    bias: Float[Tensor, "vocabulary"] | None = None

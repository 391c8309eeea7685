"""The one vocabulary in which every architecture is described.

A residual stream starts as the sum of the embeddings, sublayers write to it, norms rescale it. An
:class:`Anatomy` names, in the order of the computation, the modules of a model that do so. It holds
modules, not copies: weights are read when they are needed, as :mod:`prosect.anatomy.weights` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from prosect.anatomy import weights
from prosect.anatomy.weights import StoredWeight
from prosect.engines.records import TERMS, Term, Turn
from prosect.modes import plain_arithmetic


@dataclass(frozen=True)
class Norm:
    """A norm: gain ⊙ (x − mean) / σ + bias.

    kind "layer": σ = sqrt(variance + ε); kind "rms": no mean, σ = sqrt(mean square + ε). ``offset``
    is added to the stored weight to give the gain (1 in Gemma).
    """

    module: Any
    kind: Literal["layer", "rms"] = "layer"
    offset: float = 0.0

    @property
    def gain(self) -> Float[Tensor, "d"] | None:
        """The factor of each dimension; None where there is none."""
        weight = weights.parameter_of(self.module, "weight")
        return weight + self.offset if weight is not None and self.offset else weight

    @property
    def bias(self) -> Float[Tensor, "d"] | None:
        """What is added at the end; None where nothing is."""
        return weights.parameter_of(self.module, "bias")

    @property
    def epsilon(self) -> float:
        """ε, inside the root."""
        module = weights.active(self.module)
        for name in ("eps", "variance_epsilon"):
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"{type(module).__name__} does not say its epsilon")


@dataclass(frozen=True)
class Dense:
    """A linear layer x W + b read one way, W as [in, out], whatever class stores it.

    ``columns`` selects the outputs that matter where one layer computes several maps at once: a
    slice, or the indices where they are interleaved.
    """

    module: Any
    columns: slice | Tensor | None = None

    @property
    def stored(self) -> StoredWeight:
        """What W is made from."""
        stored, columns = weights.weight_of(self.module), self.columns
        return stored if columns is None else stored.then(lambda weight: weight[:, columns])

    @property
    def weight(self) -> Float[Tensor, "d_in d_out"]:
        """W."""
        return self.stored.read()

    @property
    def bias(self) -> Float[Tensor, "d_out"] | None:
        """b, where there is one."""
        bias = weights.bias_of(self.module)
        return bias if bias is None or self.columns is None else bias[self.columns]


@dataclass(frozen=True)
class Projection:
    """A linear map of the whole stream, such as ELECTRA's from embedding size to hidden size."""

    dense: Dense


@dataclass(frozen=True)
class Scores:
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
        Rotary positions.
    softcap
        c where the scores become c · tanh(score / c).
    """

    query: Dense
    key: Dense
    scale: float
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    turn: Turn | None = None
    softcap: float | None = None


@dataclass(frozen=True)
class Attention:
    """An attention sublayer.

    Attributes
    ----------
    core
        The module that computes the attention weights: it hands itself to the attention function,
        or, where ``registry`` is False, returns them as its second output.
    scores
        How queries and keys make the attention scores; None where that has no simple form.
    value, output
        The maps W_V, b_V (of the key/value heads) and W_O, b_O; what ``output`` returns is what the
        sublayer writes.
    heads, kv_heads
        How many heads there are, and how many of key and value they share.
    before, after
        The norm of its input and the norm of what it writes, where there are such.
    term
        "attention", or "source" for cross-attention.
    visible
        From n to which sources the targets of n tokens may attend to. Only where ``registry`` is
        False and it is not all: the registry's function is given the mask.
    """

    core: nn.Module
    value: Dense
    output: Dense
    heads: int
    kv_heads: int
    scores: Scores | None = None
    before: Norm | None = None
    after: Norm | None = None
    registry: bool = True
    term: Term = "attention"
    visible: Callable[[int], Bool[Tensor, "target source"]] | None = None

    @property
    def bias(self) -> Float[Tensor, "d"] | None:
        """b_O + b_V W_O, the part that belongs to no token (each row of α sums to 1)."""
        value, output = self.value.bias, self.output.bias
        if value is None:
            return output
        shared = self.heads // self.kv_heads
        per_head = value.view(self.kv_heads, -1).repeat_interleave(shared, dim=0).flatten()
        weight = self.output.weight
        wide = weights.wide_of(weight, value)
        with plain_arithmetic():
            through = per_head.to(wide) @ weight.to(wide)
            return through if output is None else through + output


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward sublayer: φ(x W_in + b_in) W_out + b_out, gated or not.

    Attributes
    ----------
    inner, activation, output
        W_in and b_in, φ, W_out and b_out.
    gate
        The map whose values multiply those of φ, in a gated feed-forward.
    before, after
        The norm of its input and the norm of what it writes, where there are such.
    """

    inner: Dense
    activation: Callable[[Tensor], Tensor]
    output: Dense
    gate: Dense | None = None
    before: Norm | None = None
    after: Norm | None = None
    term: Term = "feed_forward"

    @property
    def bias(self) -> Float[Tensor, "d"] | None:
        """b_out; what is added before the non-linearity stays inside it."""
        return self.output.bias


Sublayer = Attention | FeedForward
Step = Sublayer | Norm | Projection


@dataclass(frozen=True)
class Block:
    """One layer: its module, and what happens to the stream in it, in order.

    Norms among the steps act on the stream itself (BERT); norms that only prepare a sublayer's
    input or act on what it writes belong to the sublayer (GPT-2, Gemma). In a parallel block
    attention and feed-forward read the same stream and both write to it (GPT-J).
    """

    module: nn.Module
    steps: tuple[Step, ...]
    parallel: bool = False

    @property
    def attention(self) -> Attention:
        """The self-attention."""
        return next(s for s in self.steps if isinstance(s, Attention) and s.term == "attention")

    @property
    def source(self) -> Attention | None:
        """The cross-attention of a decoder's layer."""
        cross = (s for s in self.steps if isinstance(s, Attention) and s.term == "source")
        return next(cross, None)

    @property
    def feed_forward(self) -> FeedForward:
        """The feed-forward."""
        return next(s for s in self.steps if isinstance(s, FeedForward))


@dataclass(frozen=True)
class Embedding:
    """One of the embeddings whose sum starts the stream: ``module`` returns it, up to ``scale``."""

    name: Literal["word", "position", "type"]
    module: nn.Module
    scale: float = 1.0


@dataclass(frozen=True)
class Words:
    """The word embeddings, whatever class stores them."""

    module: Any

    @property
    def weight(self) -> Float[Tensor, "token d"]:
        """One row for each token of the vocabulary, before any scale."""
        return weights.rows_of(self.module).read()

    @property
    def num_embeddings(self) -> int:
        """How many tokens the vocabulary has."""
        return weights.innermost(self.module).num_embeddings

    @property
    def embedding_dim(self) -> int:
        """How wide an embedding is."""
        return weights.innermost(self.module).embedding_dim

    @property
    def embed_scale(self) -> float:
        """What the module multiplies a row by (BART, Gemma)."""
        return float(getattr(weights.innermost(self.module), "embed_scale", 1.0))

    @property
    def device(self) -> torch.device:
        """Where they are, and where token ids have to be."""
        return weights.innermost(self.module).weight.device


@dataclass(frozen=True)
class Head:
    """Logits of a last hidden state: decoder(norm(activation(dense(x)))) · scale, or decoder alone.

    Before any cap that the model puts on them (Gemma 2).

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

    decoder: Dense
    dense: Dense | None = None
    activation: Callable[[Tensor], Tensor] | None = None
    norm: Norm | None = None
    outlet: Dense | None = None
    scale: float = 1.0
    bias: Tensor | None = None


@dataclass(frozen=True)
class Anatomy:
    """A model's parts in the order of its computation.

    Attributes
    ----------
    family
        The name of the architecture.
    base
        The module to run: a Transformer without its output head.
    words
        The word embeddings.
    embeddings
        The embeddings that are summed; the word embeddings among them.
    stem
        What happens to that sum before the first block.
    blocks
        The layers.
    tail
        What happens to the stream after the last block: the final norm, where there is one.
    outlet
        The module that receives the last hidden state, where ``base`` does not return it as it is.
    positions
        How many tokens the model can take; None where there is no limit.
    causal
        Whether a token only sees the tokens before it.
    """

    family: str
    base: Any
    words: Words
    embeddings: tuple[Embedding, ...]
    blocks: tuple[Block, ...]
    stem: tuple[Norm | Projection, ...] = ()
    tail: tuple[Norm, ...] = ()
    outlet: nn.Module | None = None
    positions: int | None = None
    causal: bool = False

    @property
    def heads(self) -> int:
        """How many attention heads a layer has."""
        return self.blocks[0].attention.heads

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms that a hidden state splits into."""
        return TERMS if self.blocks[0].source is None else (*TERMS, "source")

    def steps(self) -> Iterator[Step]:
        """Every step of the stream, from the embeddings to the last hidden state."""
        yield from self.stem
        for block in self.blocks:
            yield from block.steps
        yield from self.tail

    def check(self) -> None:
        """Whether every weight can be read, so that a model is refused at once or not at all.

        Raises
        ------
        UnsupportedModelError
            If one cannot.
        """
        weights.check_loaded(self.base)
        for step in self.steps():
            for dense in _layers_of(step):
                weights.check_linear(dense.module)
            for norm in _norms_of(step):
                _ = norm.gain, norm.bias
        weights.rows_of(self.words.module)


def plain_head(model: Any) -> Head | None:
    """The head of a model that has a linear map called ``lm_head`` and no more."""
    decoder = getattr(model, "lm_head", None)
    return None if decoder is None else Head(Dense(decoder))


def _layers_of(step: Step) -> Iterator[Dense]:
    if isinstance(step, Projection):
        yield step.dense
    elif isinstance(step, FeedForward):
        yield from (dense for dense in (step.inner, step.gate, step.output) if dense is not None)
    elif isinstance(step, Attention):
        yield from (step.value, step.output)
        if step.scores is not None:
            yield from (step.scores.query, step.scores.key)


def _norms_of(step: Step) -> Iterator[Norm]:
    if isinstance(step, Norm):
        yield step
    elif isinstance(step, Attention | FeedForward):
        yield from (norm for norm in (step.before, step.after) if norm is not None)
        rule = step.scores if isinstance(step, Attention) else None
        if rule is not None:
            yield from (norm for norm in (rule.query_norm, rule.key_norm) if norm is not None)


def looking_back(n: int) -> Bool[Tensor, "target source"]:
    """What a causal model sees: each token itself and those before it."""
    return torch.ones(n, n, dtype=torch.bool).tril()


def fused(module: Any, d: int) -> tuple[Dense, Dense, Dense]:
    """Query, key and value of one projection, one after the other, each d wide."""
    query, key, value = (Dense(module, slice(i * d, (i + 1) * d)) for i in range(3))
    return query, key, value


def interleaved(module: Any, heads: int, d_head: int) -> tuple[Dense, Dense, Dense]:
    """Query, key and value of one projection laid out as [head, (query, key, value), d_head]."""
    columns = torch.arange(heads * 3 * d_head).view(heads, 3, d_head)
    query, key, value = (Dense(module, columns[:, i].flatten()) for i in range(3))
    return query, key, value

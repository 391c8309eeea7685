"""The one vocabulary in which every architecture is described.

A residual stream starts as the sum of the embeddings, sublayers write to it, norms rescale it. An
:class:`Anatomy` names, in the order of the computation, the modules of a model that do so. It holds
modules, not copies: weights are read when they are needed, where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

Term = Literal["input", "attention", "feed_forward", "bias"]
TERMS: tuple[Term, ...] = ("input", "attention", "feed_forward", "bias")


@dataclass(frozen=True)
class Norm:
    """A LayerNorm: gain ⊙ (x − mean) / σ + bias, σ = sqrt(variance + ε)."""

    module: nn.LayerNorm

    @property
    def gain(self) -> Float[Tensor, "d"]:
        """The factor of each dimension."""
        return self.module.weight

    @property
    def bias(self) -> Float[Tensor, "d"]:
        """What is added at the end."""
        return self.module.bias

    @property
    def epsilon(self) -> float:
        """ε, inside the root."""
        return self.module.eps


@dataclass(frozen=True)
class Dense:
    """A linear layer x W + b read one way, W as [in, out], whatever class stores it.

    ``columns`` selects the outputs that matter where one layer computes several maps at once.
    """

    module: Any
    columns: slice | None = None

    @property
    def weight(self) -> Float[Tensor, "d_in d_out"]:
        """W."""
        stored = self.module.weight
        weight = stored.T if isinstance(self.module, nn.Linear) else stored
        return weight if self.columns is None else weight[:, self.columns]

    @property
    def bias(self) -> Float[Tensor, "d_out"] | None:
        """b, where there is one."""
        bias = self.module.bias
        return bias if bias is None or self.columns is None else bias[self.columns]


@dataclass(frozen=True)
class Projection:
    """A linear map of the whole stream, such as ELECTRA's from embedding size to hidden size."""

    dense: Dense


@dataclass(frozen=True)
class Attention:
    """An attention sublayer.

    ``core`` is the module that hands itself to the attention function, ``writes`` the module whose
    output is added to the stream, ``value`` and ``output`` the maps W_V, b_V and W_O, b_O.
    """

    core: nn.Module
    writes: nn.Module
    value: Dense
    output: Dense
    term: Term = "attention"

    @property
    def bias(self) -> Float[Tensor, "d"] | None:
        """b_O + b_V W_O, the part that belongs to no token (each row of α sums to 1)."""
        if self.value.bias is None:
            return self.output.bias
        through = self.value.bias @ self.output.weight
        return through if self.output.bias is None else through + self.output.bias


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward sublayer φ(x W_in + b_in) W_out + b_out; ``writes`` adds it to the stream."""

    writes: nn.Module
    output: Dense
    term: Term = "feed_forward"

    @property
    def bias(self) -> Float[Tensor, "d"] | None:
        """b_out; b_in stays inside the non-linearity."""
        return self.output.bias


Sublayer = Attention | FeedForward
Step = Sublayer | Norm | Projection


@dataclass(frozen=True)
class Block:
    """One layer. ``order`` says where its two norms act.

    post: each norm takes the stream after its sublayer has written (BERT).
    pre:  each norm only prepares its sublayer's input; the stream itself is a plain sum (GPT-2).
    """

    module: nn.Module
    order: Literal["post", "pre"]
    attention: Attention
    attention_norm: Norm
    feed_forward: FeedForward
    feed_forward_norm: Norm

    def steps(self) -> Iterator[Step]:
        """What happens to the stream in this layer, in order."""
        yield self.attention
        if self.order == "post":
            yield self.attention_norm
        yield self.feed_forward
        if self.order == "post":
            yield self.feed_forward_norm


@dataclass(frozen=True)
class Anatomy:
    """A model's parts in the order of its computation.

    ``base`` is the bare Transformer without an output head, ``positions`` how many tokens it can
    take (None: no limit).
    """

    family: str
    base: nn.Module
    words: nn.Embedding
    embedding_norm: Norm | None
    embedding_projection: Projection | None
    blocks: tuple[Block, ...]
    final_norm: Norm | None
    heads: int
    positions: int | None
    causal: bool

    def stem(self) -> Iterator[Step]:
        """What happens to the sum of the embeddings before the first block."""
        if self.embedding_norm is not None:
            yield self.embedding_norm
        if self.embedding_projection is not None:
            yield self.embedding_projection

    def steps(self) -> Iterator[Step]:
        """Every step of the stream, from the embeddings to the last hidden state."""
        yield from self.stem()
        for block in self.blocks:
            yield from block.steps()
        if self.final_norm is not None:
            yield self.final_norm

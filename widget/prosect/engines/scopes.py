"""Token-to-token maps of one layer, scope by scope (Kobayashi et al. 2020, 2021, 2024).

y_i = Σ_j F_i(x_j) + a part that belongs to no token; the map is |F_i(x_j)|. Up to the feed-forward
the part that source j sends to target i is a linear combination of few directions, one per head; the
residual connection only adds to the part that a token sends to itself. With α and σ frozen, a norm
acts on the directions (centring and gain) and on the coefficients (1/σ). The map then needs one small
Gram matrix per source and no vectors. The feed-forward takes the directions through W_in once,
combines them for each target, multiplies by θ and goes through W_out in blocks of targets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.engines.activation import Baseline
from prosect.engines.linear import (
    centred_and_gained,
    freeze,
    rest_through_norm,
    sent,
    through_feed_forward,
    through_norm,
    value_bias_output,
)
from prosect.engines.records import (
    AttentionRecord,
    FeedForwardRecord,
    LayerRecord,
    NormRecord,
)
from prosect.engines.terms import reconstruction_error

BLOCK = 2**24
"""The largest number of neuron values held for one block of targets."""
SOURCES = 16
"""How many sources are converted to float64 at once. Few of them stay in the processor's cache."""


@dataclass(frozen=True)
class Combined:
    """Parts as combinations: source j sends Σ_h a_ijh D_jh to target i, and target i keeps K_i itself.

    Attributes
    ----------
    a
        [target, source, head], the coefficients α.
    directions
        [source, head, d], D.
    kept
        [target, d], K, what residual connections add to the part that a token sends to itself.
    rest
        [target, d], the part that belongs to no token.
    total
        [target, d], the sum of all parts, without the rest. It is computed once after attention and
        then carried through every step beside the parts.
    """

    a: Float[Tensor, "target source head"]
    directions: Float[Tensor, "source head d"]
    kept: Float[Tensor, "target d"]
    rest: Float[Tensor, "target d"]
    total: Float[Tensor, "target d"]

    def plus_own(self, own: Float[Tensor, "token d"]) -> Combined:
        """Add a vector of each token to the part that it sends to itself."""
        return replace(self, kept=self.kept + own, total=self.total + own)

    def plus_rest(self, rest: Float[Tensor, "target d"]) -> Combined:
        """Add to the part that belongs to no token of this text."""
        return replace(self, rest=self.rest + rest)

    def through(self, norm: NormRecord) -> Combined:
        """Centring and gain act on the directions, 1/σ on the coefficients; b joins the rest."""
        return Combined(
            self.a / norm.std[:, None],
            centred_and_gained(self.directions, norm),
            through_norm(self.kept, norm),
            rest_through_norm(self.rest, norm),
            through_norm(self.total, norm),
        )

    def through_map(self, W: Float[Tensor, "d d_out"]) -> Combined:
        """Every part times W."""
        return Combined(self.a, self.directions @ W, self.kept @ W, self.rest @ W, self.total @ W)

    def vectors(self, targets: slice) -> Float[Tensor, "source target d"]:
        """The parts themselves, for some targets."""
        sent = self.a[targets].transpose(0, 1) @ self.directions
        own_of(sent, targets).add_(self.kept[targets])
        return sent

    def own(self) -> Float[Tensor, "token d"]:
        """The part that each token sends to itself."""
        return torch.einsum("ht,thd->td", self.a.diagonal(), self.directions) + self.kept

    def norms(self) -> Float[Tensor, "target source"]:
        """|Σ_h a_ijh D_jh| = sqrt(aᵀ G_j a) by the Gram matrices of the directions, in float64."""
        a = self.a.transpose(0, 1)  # [source, target, head]
        blocks = zip(a.split(SOURCES), self.directions.split(SOURCES), strict=True)
        found = torch.cat([_lengths(a.double(), d.double()) for a, d in blocks]).T.to(self.a.dtype)
        found.diagonal().copy_(self.own().norm(dim=-1))
        return found


def own_of(x: Float[Tensor, "source target d"], targets: slice) -> Float[Tensor, "target d"]:
    """The parts that some targets send to themselves, as a view."""
    return x[targets].diagonal().T


def _lengths(
    a: Float[Tensor, "source target head"], directions: Float[Tensor, "source head d"]
) -> Float[Tensor, "source target"]:
    gram = directions @ directions.transpose(1, 2)
    return ((a @ gram) * a).sum(-1).clamp_min(0.0).sqrt()


@dataclass
class Scope:
    """One map, and facts about the vectors behind it.

    Attributes
    ----------
    values
        [target, source], |F_i(x_j)|.
    rest
        [target], the length of the part that belongs to no token.
    own, others
        [target], the length of what a token sends to itself, and of the sum of all other parts.
    error
        The certificate: max over targets of |Σ parts + rest − y| / |y|.
    """

    values: Float[Tensor, "target source"]
    rest: Float[Tensor, "target"]
    own: Float[Tensor, "target"]
    others: Float[Tensor, "target"]
    error: float


Measure = Callable[[Float[Tensor, "source target d"], Float[Tensor, "target d"]], Tensor]


def l1_share(
    parts: Float[Tensor, "source target d"], whole: Float[Tensor, "target d"]
) -> Float[Tensor, "source target"]:
    """How much each part reduces the L1 distance to the output, as shares (Ferrando et al. 2022)."""
    distance = (whole - parts).abs().sum(-1)
    nearer = (whole.abs().sum(-1) - distance).clamp_min(0.0)
    return nearer / nearer.sum(0).clamp_min(torch.finfo(nearer.dtype).tiny)


@dataclass
class _Walk:
    """Collects the scopes of one layer in the order of its computation."""

    measure: Measure | None
    scopes: dict[str, Scope] = field(default_factory=dict)

    def see(
        self,
        name: str,
        parts: Combined,
        whole: Float[Tensor, "token d"],
        *,
        residual_of: str | None = None,
    ) -> None:
        """Add a scope whose parts are still linear combinations.

        ``residual_of`` names an earlier scope that differs only by the residual connection: the map
        then differs only on its diagonal.
        """
        own, total = parts.own(), parts.total
        if self.measure is not None:
            values = _measured(parts, whole, self.measure)
        elif residual_of is not None:
            values = self.scopes[residual_of].values.clone()
            values.diagonal().copy_(own.norm(dim=-1))
        else:
            values = parts.norms()
        self.scopes[name] = Scope(
            values=values,
            rest=parts.rest.norm(dim=-1),
            own=own.norm(dim=-1),
            others=(total - own).norm(dim=-1),
            error=_gap(total + parts.rest, whole),
        )

    def see_block(
        self,
        name: str,
        targets: slice,
        vectors: Float[Tensor, "source target d"],
        rest: Float[Tensor, "target d"],
        whole: Float[Tensor, "target d"],
    ) -> None:
        """Add a block of targets to a scope."""
        measure = self.measure
        values = vectors.norm(dim=-1) if measure is None else measure(vectors, whole)
        own = own_of(vectors, targets)
        total = vectors.sum(0)
        seen = Scope(
            values=values.T,
            rest=rest.norm(dim=-1),
            own=own.norm(dim=-1),
            others=(total - own).norm(dim=-1),
            error=_gap(total + rest, whole),
        )
        before = self.scopes.get(name)
        self.scopes[name] = seen if before is None else _beside(before, seen)


def _measured(
    parts: Combined, whole: Float[Tensor, "token d"], measure: Measure
) -> Float[Tensor, "target source"]:
    """A measure of parts that are still linear combinations, block by block of targets."""
    n, d = whole.shape
    size = max(1, BLOCK // (n * d))
    blocks = [slice(i, min(i + size, n)) for i in range(0, n, size)]
    return torch.cat([measure(parts.vectors(block), whole[block]).T for block in blocks])


def _beside(a: Scope, b: Scope) -> Scope:
    return Scope(
        values=torch.cat([a.values, b.values]),
        rest=torch.cat([a.rest, b.rest]),
        own=torch.cat([a.own, b.own]),
        others=torch.cat([a.others, b.others]),
        error=max(a.error, b.error),
    )


def _gap(total: Float[Tensor, "token d"], whole: Float[Tensor, "token d"]) -> float:
    return float(reconstruction_error(total, whole).max())


def norm_map(
    attention: AttentionRecord, value_bias: bool = True
) -> Float[Tensor, "head target source"]:
    """|α_ij f^h(x_j)| for each head (Kobayashi et al. 2020, ATTN-N)."""
    return attention.alpha * sent(attention, value_bias).norm(dim=-1).T[:, None]


def parts_of_attention(attention: AttentionRecord, value_bias: bool = True) -> Combined:
    """What each source sends through all heads; the biases belong to no token."""
    directions = sent(attention, value_bias)
    a = attention.alpha.permute(1, 2, 0).contiguous()
    output = attention.output
    bias = torch.zeros_like(output[0]) if attention.bias is None else attention.bias
    of_values = value_bias_output(attention, output) if value_bias else None
    bias = bias if of_values is None else bias - of_values
    total = torch.einsum("hts,shd->td", attention.alpha, directions)
    rest = bias.expand_as(output)
    return Combined(a, directions, torch.zeros_like(rest), rest, total)


def scopes_of(
    layer: LayerRecord,
    *,
    feed_forward: bool = True,
    value_bias: bool = True,
    baseline: Baseline = "zero",
    measure: Measure | None = None,
) -> dict[str, Scope]:
    """Every map of one layer, in the order of its computation.

    By name, see :func:`prosect.analyses.kinds.scopes_of`.

    Parameters
    ----------
    layer
        What the block did.
    feed_forward
        Whether to continue through the feed-forward. Without it no vectors are made.
    value_bias
        Whether the value's bias is part of what a token sends.
    baseline
        Where integrated gradients of the feed-forward start.
    measure
        Computes the map from the parts, in place of their length.
    """
    walk = _Walk(measure)
    attention, following = layer.attention, list(layer.following)
    parts, whole = parts_of_attention(attention, value_bias), attention.output
    walk.see(sent_as := "ATTN", parts, whole)
    if attention.after is not None:
        parts, whole = parts.through(attention.after), rest_through_norm(whole, attention.after)
        walk.see(sent_as := "ATTNLN", parts, whole)
    parts, whole = parts.plus_own(layer.x), whole + layer.x
    if following and isinstance(following[0], NormRecord):
        walk.see("ATTNRES", parts, whole, residual_of=sent_as)
        parts, whole = parts.through(following[0]), rest_through_norm(whole, following[0])
        del following[0]
        walk.see("ATB", parts, whole)
    else:
        walk.see("ATB", parts, whole, residual_of=sent_as)
    for record in following:
        match record:
            case NormRecord():
                parts, whole = parts.through(record), rest_through_norm(whole, record)
            case AttentionRecord():  # attention to another text: no token of this one
                written = record.output
                if record.after is not None:
                    written = rest_through_norm(written, record.after)
                parts, whole = parts.plus_rest(written), whole + written
            case FeedForwardRecord(parallel=True):
                if feed_forward:
                    own, rest = _own_feed_forward(layer.x, record, baseline)
                    left = whole + record.output if layer.y is None else layer.y
                    parts = parts.plus_own(own).plus_rest(rest)
                    walk.see("ATBFF", parts, left, residual_of="ATB")
            case FeedForwardRecord():
                read = parts
                if record.before is not None:
                    read = parts.through(record.before)
                    walk.see("ATBLN", read, rest_through_norm(whole, record.before))
                if feed_forward:
                    _feed_forward_scopes(walk, parts, read, whole, layer, baseline)
                break
    return walk.scopes


def _own_feed_forward(
    x: Float[Tensor, "token d"], record: FeedForwardRecord, baseline: Baseline
) -> tuple[Float[Tensor, "token d"], Float[Tensor, "token d"]]:
    """The feed-forward of a parallel block: it reads each token alone; its biases belong to no token."""
    own, rest = x, torch.zeros_like(x)
    if record.before is not None:
        own, rest = through_norm(own, record.before), rest_through_norm(rest, record.before)
    frozen = freeze(record, rest, baseline)
    own, rest = through_feed_forward(own, frozen), frozen.rest
    if record.after is not None:
        own, rest = through_norm(own, record.after), rest_through_norm(rest, record.after)
    return own, rest


def _feed_forward_scopes(
    walk: _Walk,
    parts: Combined,
    read: Combined,
    whole: Float[Tensor, "token d"],
    layer: LayerRecord,
    baseline: Baseline,
) -> None:
    """FF and the scopes after it, block by block of targets.

    ``parts`` are those of the residual stream, ``whole`` their sum with the rest, ``read`` those
    that the feed-forward reads.
    """
    record, last, y = layer.feed_forward, layer.last_norm, layer.y
    prefix = "ATB" if record.before is None else "ATBLN"
    frozen = freeze(record, read.rest, baseline)
    pushed = read.through_map(frozen.w_in)
    gated = None if frozen.w_gate is None else read.through_map(frozen.w_gate)
    n, d_ff = len(whole), frozen.w_in.shape[1]
    size = max(1, BLOCK // (n * d_ff))
    for start in range(0, n, size):
        t = slice(start, min(start + size, n))
        neurons = pushed.vectors(t).mul_(frozen.a[t])
        if gated is not None and frozen.b is not None:
            neurons += gated.vectors(t).mul_(frozen.b[t])
        vectors, rest, real = neurons @ frozen.w_out, frozen.rest[t], record.output[t]
        name = prefix + "FF"
        walk.see_block(name, t, vectors, rest, real)
        if record.after is not None:
            norm, name = record.after.at(t), name + "LN"
            vectors = through_norm(vectors, norm)
            rest, real = rest_through_norm(rest, norm), rest_through_norm(real, norm)
            walk.see_block(name, t, vectors, rest, real)
        name += "RES"
        vectors = vectors.add_(parts.vectors(t))
        rest, real = rest + parts.rest[t], real + whole[t]
        left = None if y is None else y[t]
        walk.see_block(name, t, vectors, rest, real if last or left is None else left)
        if last is not None:
            norm = last.at(t)
            vectors, rest = through_norm(vectors, norm), rest_through_norm(rest, norm)
            end = rest_through_norm(real, norm) if left is None else left
            walk.see_block(name + "LN", t, vectors, rest, end)

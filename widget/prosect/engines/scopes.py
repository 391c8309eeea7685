"""Token-to-token maps of one layer, scope by scope (Kobayashi et al. 2020, 2021, 2024).

y_i = Σ_j F_i(x_j) + a part that belongs to no token; the map is |F_i(x_j)|. Up to the feed-forward
the part that source j sends to target i is a combination of few directions, one a head; what the
residual connection adds is each token's own. With α, σ frozen, norms act on the directions (centring
and gain) and on the coefficients (1/σ), so the map needs one small Gram matrix a source and no
vectors. The feed-forward maps the directions through W_in once, combines them a target, weighs them
by θ and goes through W_out in blocks of targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.engines.activation import Baseline, gated_factors, ratio
from prosect.engines.records import Affine, Attended, Fed, Normed, Record, State, Wrote
from prosect.engines.terms import reconstruction_error

BLOCK = 2**24
"""How many numbers the neurons of a block of targets may take."""
SOURCES = 16
"""How many sources' directions are widened to float64 at once: few, so that they stay in cache."""


@dataclass(frozen=True)
class Layer:
    """What one block did: the stream that entered it, its records in order, the stream that left it.

    In a parallel block the feed-forward reads the same stream as attention. What left the last block
    of a model with a final norm is not known (None): the model reports it after that norm.
    """

    x: Float[Tensor, "token d"]
    records: tuple[Wrote | Normed, ...]
    parallel: bool
    y: Float[Tensor, "token d"] | None

    @property
    def attention(self) -> Wrote:
        """The record of its self-attention, the first of all."""
        first = self.records[0]
        assert isinstance(first, Wrote)
        return first


def layers_of(stream: Sequence[Record], parallel: Sequence[bool]) -> Iterator[Layer]:
    """Cut a run into its blocks."""
    states = {record.layer: record.hidden for record in stream if isinstance(record, State)}
    normed_last = any(isinstance(record, Normed) and record.layer is None for record in stream)
    for number, side_by_side in enumerate(parallel, start=1):
        own = [r for r in stream if isinstance(r, Wrote | Normed) and r.layer == number]
        left = None if normed_last and number == len(parallel) else states[number]
        yield Layer(states[number - 1], tuple(own), side_by_side, left)


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
        [target, d], K: what residual connections add to the part that a token sends to itself.
    rest
        [target, d], what is no token's.
    total
        [target, d], the sum of all parts without the rest. It is summed once, over what attention
        sends, and then goes through every step beside the parts.
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
        """Add what is of no token of this text."""
        return replace(self, rest=self.rest + rest)

    def through(self, norm: Normed) -> Combined:
        """Centring and gain act on the directions, 1/σ on the coefficients; b joins the rest."""
        return Combined(
            self.a / norm.std[:, None],
            shaped(self.directions, norm),
            shaped(self.kept, norm) / norm.std,
            through(self.rest, norm),
            shaped(self.total, norm) / norm.std,
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
        """What each token sends to itself."""
        return torch.einsum("ht,thd->td", self.a.diagonal(), self.directions) + self.kept

    def norms(self) -> Float[Tensor, "target source"]:
        """|Σ_h a_ijh D_jh| = sqrt(aᵀ G_j a) by the Gram matrices of the directions, in float64."""
        a = self.a.transpose(0, 1)  # [source, target, head]
        blocks = zip(a.split(SOURCES), self.directions.split(SOURCES), strict=True)
        found = torch.cat([_lengths(a.double(), d.double()) for a, d in blocks]).T.to(self.a.dtype)
        found.diagonal().copy_(self.own().norm(dim=-1))
        return found


def own_of(x: Float[Tensor, "source target d"], targets: slice) -> Float[Tensor, "target d"]:
    """What some targets get from themselves, as a view."""
    return x[targets].diagonal().T


def _lengths(
    a: Float[Tensor, "source target head"], directions: Float[Tensor, "source head d"]
) -> Float[Tensor, "source target"]:
    gram = directions @ directions.transpose(1, 2)
    return ((a @ gram) * a).sum(-1).clamp_min(0.0).sqrt()


def shaped(x: Float[Tensor, "*axes d"], norm: Normed) -> Float[Tensor, "*axes d"]:
    """A norm's centring and gain, without its spread and bias."""
    if norm.mean is None:
        return x if norm.gain is None else x * norm.gain
    centred = x - x.mean(-1, keepdim=True)
    return centred if norm.gain is None else centred.mul_(norm.gain)


def through(rest: Float[Tensor, "token d"], norm: Normed) -> Float[Tensor, "token d"]:
    """A part of no token through a norm: it carries the bias b with it."""
    scaled = shaped(rest, norm) / norm.std
    return scaled if norm.bias is None else scaled + norm.bias


@dataclass
class Scope:
    """One map, and what is known of the vectors behind it.

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
    """How much nearer each part brings the output in L1, as shares (ALTI, Ferrando et al. 2022)."""
    distance = (whole - parts).abs().sum(-1)
    nearer = (whole.abs().sum(-1) - distance).clamp_min(0.0)
    return nearer / nearer.sum(0).clamp_min(torch.finfo(nearer.dtype).tiny)


@dataclass
class _Walk:
    """The scopes of one layer, as they are passed."""

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
        """Measure parts that are still combinations.

        Where they are those of a scope seen before and the residual connection, only what tokens
        send to themselves is another.
        """
        own, total = parts.own(), parts.total
        if self.measure is not None:
            values = self._measured(parts, whole)
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

    def _measured(self, parts: Combined, whole: Float[Tensor, "token d"]) -> Tensor:
        assert self.measure is not None
        n, d = whole.shape
        size = max(1, BLOCK // (n * d))
        blocks = [slice(i, min(i + size, n)) for i in range(0, n, size)]
        return torch.cat([self.measure(parts.vectors(b), whole[b]).T for b in blocks])

    def see_block(
        self,
        name: str,
        targets: slice,
        vectors: Float[Tensor, "source target d"],
        rest: Float[Tensor, "target d"],
        whole: Float[Tensor, "target d"],
    ) -> None:
        """Measure the parts of a block of targets, and put them beside those before."""
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


def sent(attended: Attended, value_bias: bool = True) -> Float[Tensor, "source head d"]:
    """f^h(x_j) = (x_j W_V + b_V) W_O of every head, with or without the value's bias."""
    heads = len(attended.alpha)
    value = attended.value
    if not value_bias and attended.value_bias is not None:
        value = value - attended.value_bias[:, None]
    value = value.repeat_interleave(heads // len(value), dim=0)
    output = attended.weight.to(value).unflatten(0, (heads, -1))
    return (value @ output).transpose(0, 1)


def norm_map(attended: Attended, value_bias: bool = True) -> Float[Tensor, "head target source"]:
    """|α_ij f^h(x_j)| for each head (Kobayashi et al. 2020, ATTN-N)."""
    return attended.alpha * sent(attended, value_bias).norm(dim=-1).T[:, None]


def attended_parts(wrote: Wrote, value_bias: bool = True) -> Combined:
    """What each source sends through all heads, and the biases, which are no token's."""
    attended = wrote.detail
    assert isinstance(attended, Attended)
    directions = sent(attended, value_bias)
    a = attended.alpha.permute(1, 2, 0).contiguous()
    bias = torch.zeros_like(wrote.output[0]) if wrote.bias is None else wrote.bias
    if value_bias and attended.value_bias is not None:
        heads = len(attended.alpha)
        per_head = attended.value_bias.repeat_interleave(heads // len(attended.value), dim=0)
        bias = bias - per_head.flatten() @ attended.weight.to(bias)
    total = torch.einsum("hts,shd->td", attended.alpha, directions)
    rest = bias.expand_as(wrote.output)
    return Combined(a, directions, torch.zeros_like(rest), rest, total)


def scopes_of(
    layer: Layer,
    *,
    feed_forward: bool = True,
    value_bias: bool = True,
    baseline: Baseline = "zero",
    measure: Measure | None = None,
) -> dict[str, Scope]:
    """Every map of one layer, in the order of its computation.

    By name, see :func:`prosect.analyses.kinds.scope_names`.

    Parameters
    ----------
    layer
        What the block did.
    feed_forward
        Whether to go on through the feed-forward; without, no vectors are made.
    value_bias
        Whether the value's bias is part of what a token sends.
    baseline
        Where integrated gradients of the feed-forward start.
    measure
        Instead of the length of the parts, what to make of them.
    """
    walk = _Walk(measure)
    first, following = layer.attention, list(layer.records[1:])
    parts, whole = attended_parts(first, value_bias), first.output
    walk.see(sent_as := "ATTN", parts, whole)
    if first.after is not None:
        parts, whole = parts.through(first.after), through(whole, first.after)
        walk.see(sent_as := "ATTNLN", parts, whole)
    parts, whole = parts.plus_own(layer.x), whole + layer.x
    if following and isinstance(following[0], Normed):
        walk.see("ATTNRES", parts, whole, residual_of=sent_as)
        norm = following.pop(0)
        assert isinstance(norm, Normed)
        parts, whole = parts.through(norm), through(whole, norm)
        walk.see("ATB", parts, whole)
    else:
        walk.see("ATB", parts, whole, residual_of=sent_as)
    for place, record in enumerate(following):
        if isinstance(record, Normed):
            parts, whole = parts.through(record), through(whole, record)
        elif record.term == "source":
            parts, whole = parts.plus_rest(record.output), whole + record.output
        elif layer.parallel:
            if feed_forward:
                own, rest = _own_feed_forward(layer.x, record, baseline)
                left = whole + record.output if layer.y is None else layer.y
                parts = parts.plus_own(own).plus_rest(rest)
                walk.see("ATBFF", parts, left, residual_of="ATB")
        else:
            read = parts
            if record.before is not None:
                read = parts.through(record.before)
                walk.see("ATBLN", read, through(whole, record.before))
            if feed_forward:
                last = following[place + 1] if place + 1 < len(following) else None
                assert last is None or isinstance(last, Normed)
                _feed_forward_scopes(walk, parts, read, whole, record, last, layer.y, baseline)
            break
    return walk.scopes


@dataclass(frozen=True)
class Frozen:
    """A feed-forward with its activation frozen: linear in the parts of its input.

    Part x_j becomes ((x_j W_in) ⊙ A [+ (x_j W_gate) ⊙ B]) W_out, with A and B a target; what is of
    no token becomes the rest.
    """

    w_in: Float[Tensor, "d d_ff"]
    a: Float[Tensor, "target d_ff"]
    w_gate: Float[Tensor, "d d_ff"] | None
    b: Float[Tensor, "target d_ff"] | None
    w_out: Float[Tensor, "d_ff d"]
    rest: Float[Tensor, "target d"]


def frozen(fed: Fed, rest: Float[Tensor, "target d"], baseline: Baseline) -> Frozen:
    """Freeze a feed-forward at what its run computed; ``rest`` is the token-less part of its input."""
    w_in, u0 = _pushed(rest, fed.inner)
    w_out = fed.weight.to(rest)
    from_bias = baseline == "bias"
    if fed.v is None or fed.gate is None:
        a = ratio(fed.activation, fed.u, u0 if from_bias else None)
        kept = fed.activation(u0) if from_bias else a * u0
        return Frozen(w_in, a, None, None, w_out, _out(kept, fed, w_out))
    w_gate, v0 = _pushed(rest, fed.gate)
    starts = (u0, v0) if from_bias else (None, None)
    a, b = gated_factors(fed.activation, fed.u, fed.v, *starts)
    kept = fed.activation(u0) * v0 if from_bias else a * u0 + b * v0
    return Frozen(w_in, a, w_gate, b, w_out, _out(kept, fed, w_out))


def _pushed(
    rest: Float[Tensor, "target d"], affine: Affine
) -> tuple[Float[Tensor, "d d_ff"], Float[Tensor, "target d_ff"]]:
    """The weights in working precision, and the token-less part behind them."""
    weight = affine.weight.to(rest)
    pushed = rest @ weight
    return weight, pushed if affine.bias is None else pushed + affine.bias


def _out(kept: Tensor, fed: Fed, w_out: Tensor) -> Float[Tensor, "target d"]:
    out = kept @ w_out
    return out if fed.bias is None else out + fed.bias


def _own_feed_forward(
    x: Float[Tensor, "token d"], record: Wrote, baseline: Baseline
) -> tuple[Float[Tensor, "token d"], Float[Tensor, "token d"]]:
    """The feed-forward of a parallel block: it reads each token alone; its biases are no token's."""
    fed, norm = record.detail, record.before
    assert isinstance(fed, Fed)
    own, rest = x, torch.zeros_like(x)
    if norm is not None:
        own, rest = shaped(own, norm) / norm.std, through(rest, norm)
    ff = frozen(fed, rest, baseline)
    neurons = (own @ ff.w_in) * ff.a
    if ff.w_gate is not None and ff.b is not None:
        neurons = neurons + (own @ ff.w_gate) * ff.b
    own, rest = neurons @ ff.w_out, ff.rest
    if record.after is not None:
        own, rest = shaped(own, record.after) / record.after.std, through(rest, record.after)
    return own, rest


def _feed_forward_scopes(
    walk: _Walk,
    parts: Combined,
    read: Combined,
    whole: Float[Tensor, "token d"],
    record: Wrote,
    last: Normed | None,
    y: Float[Tensor, "token d"] | None,
    baseline: Baseline,
) -> None:
    """FF and the scopes after it, block by block of targets.

    ``parts`` are those of the residual stream, ``read`` those that the feed-forward reads.
    """
    fed = record.detail
    assert isinstance(fed, Fed)
    prefix = "ATB" if record.before is None else "ATBLN"
    ff = frozen(fed, read.rest, baseline)
    pushed = read.through_map(ff.w_in)
    gated = None if ff.w_gate is None else read.through_map(ff.w_gate)
    n, d_ff = len(whole), ff.w_in.shape[1]
    size = max(1, BLOCK // (n * d_ff))
    for start in range(0, n, size):
        t = slice(start, min(start + size, n))
        neurons = pushed.vectors(t).mul_(ff.a[t])
        if gated is not None and ff.b is not None:
            neurons += gated.vectors(t).mul_(ff.b[t])
        vectors, rest, real = neurons @ ff.w_out, ff.rest[t], record.output[t]
        name = prefix + "FF"
        walk.see_block(name, t, vectors, rest, real)
        if record.after is not None:
            norm, name = _at(record.after, t), name + "LN"
            vectors = shaped(vectors, norm) / norm.std
            rest, real = through(rest, norm), through(real, norm)
            walk.see_block(name, t, vectors, rest, real)
        name += "RES"
        vectors = vectors.add_(parts.vectors(t))
        rest, real = rest + parts.rest[t], real + whole[t]
        left = None if y is None else y[t]
        walk.see_block(name, t, vectors, rest, real if last or left is None else left)
        if last is not None:
            norm = _at(last, t)
            vectors, rest = shaped(vectors, norm) / norm.std, through(rest, norm)
            walk.see_block(
                name + "LN", t, vectors, rest, through(real, norm) if left is None else left
            )


def _at(norm: Normed, targets: slice) -> Normed:
    """The norm as it acted on some of the tokens."""
    mean = None if norm.mean is None else norm.mean[targets]
    return replace(norm, mean=mean, variance=norm.variance[targets])

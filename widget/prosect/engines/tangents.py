"""The steps of a run, differentiated: from a change of what a step reads to the change it makes.

Written out by hand for batches of tangents, [tangent, token, d], at the values that the run had:
nothing is frozen here, the softmax moves with queries and keys, norms with their spread, activations
with their slope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.anatomy.vocabulary import Dense, Norm
from prosect.engines.activation import Activation
from prosect.engines.records import Attended, Fed, Normed, Projected, Record, State, Wrote
from prosect.engines.scopes import through

Tangent = Float[Tensor, "tangent token d"]


def normed(dx: Tangent, x: Float[Tensor, "token d"], norm: Normed) -> Tangent:
    """d[g (x − m)/σ + b] = g/σ (dx − mean(dx) − x̂ mean(x̂ dx)), x̂ = (x − m)/σ; no means in RMSNorm."""
    centred = x if norm.mean is None else x - norm.mean
    return _normed(dx, centred / norm.std, norm.std, norm.gain, norm.mean is not None)


def _normed(
    dx: Float[Tensor, "*axes d"],
    unit: Float[Tensor, "*axes d"],
    std: Float[Tensor, "*axes 1"],
    gain: Float[Tensor, "d"] | None,
    centred: bool,
) -> Float[Tensor, "*axes d"]:
    along = (unit * dx).mean(-1, keepdim=True)
    if centred:
        dx = dx - dx.mean(-1, keepdim=True)
    dy = (dx - unit * along) / std
    return dy if gain is None else dy * gain


def slope(g: Activation, u: Float[Tensor, "token d_ff"]) -> Float[Tensor, "token d_ff"]:
    """g'(u), element by element."""
    with torch.enable_grad():
        at = u.detach().clone().requires_grad_()
        (found,) = torch.autograd.grad(g(at).sum(), at)
    return found


def fed(dx: Tangent, step: Fed) -> Tangent:
    """d[φ(u) ⊙ v] W_out = (φ'(u) ⊙ v ⊙ du + φ(u) ⊙ dv) W_out, u = x W_in + b, v = x W_gate + b."""
    moved = dx @ step.inner.weight.to(dx)
    moved *= (
        slope(step.activation, step.u)
        if step.v is None
        else (slope(step.activation, step.u) * step.v)
    )
    if step.gate is not None:
        moved += (dx @ step.gate.weight.to(dx)).mul_(step.activation(step.u))
    return moved @ step.weight.to(dx)


def attended(
    dx: Tangent, step: Attended, *, of_source: bool = False, head: int | None = None
) -> Tangent:
    """d[Σ_h α v W_O] with dα = α ⊙ (ds − Σ α ds), ds = (dq kᵀ + q dkᵀ) · scale.

    In cross-attention (``of_source``) keys and values belong to the other text and stay. With a
    ``head`` only what that one writes.
    """
    rule = step.scores
    assert rule is not None
    kv_heads, alpha = len(step.value), step.alpha
    shared = len(alpha) // kv_heads
    query, dquery = _made(dx, step, rule.query, rule.query_norm, len(alpha))
    if of_source:
        assert step.source_key is not None
        keys = _spread(step.source_key, shared).transpose(-1, -2)
        ds = dquery @ keys
    else:
        key, dkey = _made(dx, step, rule.key, rule.key_norm, kv_heads)
        keys = _spread(key, shared).transpose(-1, -2)
        ds = dquery @ keys
        ds += query @ _spread(dkey, shared).transpose(-1, -2)
    ds *= rule.scale
    if rule.softcap is not None:
        ds *= 1 - torch.tanh(query @ keys * rule.scale / rule.softcap).square()
    # masked pairs have α = 0 and stay there, whatever their scores do
    ds *= alpha
    ds -= alpha * ds.sum(-1, keepdim=True)
    dcontext = ds @ _spread(step.value, shared)
    if not of_source:
        dvalue = (dx @ step.value_map.weight.detach().to(dx)).unflatten(-1, (kv_heads, -1))
        dcontext += alpha @ _spread(dvalue.transpose(-2, -3), shared)
    weight = step.weight.to(dx)
    if head is not None:
        return dcontext[:, head] @ weight.unflatten(0, (len(alpha), -1))[head]
    return dcontext.transpose(-2, -3).flatten(-2) @ weight


def _made(
    dx: Tangent, step: Attended, dense: Dense, norm: Norm | None, heads: int
) -> tuple[Float[Tensor, "head token d_head"], Float[Tensor, "tangent head token d_head"]]:
    """Query or key as they are multiplied, and how they change: projected, normed, turned."""
    weight, bias = dense.weight.detach().to(dx), dense.bias
    made, moved = step.read @ weight, dx @ weight
    if bias is not None:
        made = made + bias.detach().to(dx)
    whole = norm is not None and norm.gain is not None and len(norm.gain) == made.shape[-1]
    if norm is not None and whole:
        made, moved = _normed_both(made, moved, norm)
    made, moved = (x.unflatten(-1, (heads, -1)).transpose(-2, -3) for x in (made, moved))
    if norm is not None and not whole:
        made, moved = _normed_both(made, moved, norm)
    assert step.scores is not None
    if step.scores.turn is not None and step.tables is not None:
        made, moved = (step.scores.turn(x, *step.tables) for x in (made, moved))
    return made, moved


def _normed_both(
    x: Float[Tensor, "*axes d"], dx: Float[Tensor, "*tangents d"], norm: Norm
) -> tuple[Float[Tensor, "*axes d"], Float[Tensor, "*tangents d"]]:
    centred = norm.kind == "layer"
    if centred:
        x = x - x.mean(-1, keepdim=True)
    std = (x.square().mean(-1, keepdim=True) + norm.epsilon).sqrt()
    gain = None if norm.gain is None else norm.gain.detach().to(x)
    bias = None if norm.bias is None else norm.bias.detach().to(x)
    unit = x / std
    made = unit if gain is None else unit * gain
    return (made if bias is None else made + bias), _normed(dx, unit, std, gain, centred)


def _spread(x: Float[Tensor, "*axes kv_head token d"], shared: int) -> Tensor:
    return x if shared == 1 else x.repeat_interleave(shared, dim=-3)


@dataclass(frozen=True)
class Turned:
    """What each token goes through by itself, as one matrix a token."""

    matrix: Float[Tensor, "token d_in d_out"]


@dataclass(frozen=True)
class Point:
    """Where a run was before one of its steps: the stream, and what a parallel block read."""

    record: Normed | Projected | Wrote | State | Turned
    x: Float[Tensor, "token d"]
    parallel: bool


def points(stream: Sequence[Record], parallel: Sequence[bool]) -> list[Point]:
    """Walk a run once: what the stream was before every step that differentiates it."""
    found: list[Point] = []
    x = None
    for record in stream:
        if isinstance(record, State):
            x = record.hidden
            found.append(Point(record, x, False))
            continue
        if x is None and isinstance(record, Wrote):
            x = record.output
            continue
        assert x is not None
        side = isinstance(record, Wrote) and parallel[record.layer - 1]
        found.append(Point(record, x, side))
        x = _after(x, record)
    return found


def _after(x: Float[Tensor, "token d"], record: Normed | Projected | Wrote) -> Tensor:
    if isinstance(record, Normed):
        return through(x, record)
    if isinstance(record, Projected):
        out = x @ record.weight
        return out if record.bias is None else out + record.bias
    return x + (record.output if record.after is None else through(record.output, record.after))


def merged(walked: Sequence[Point], numbers: int, progress: Callable[[int], object]) -> list[Point]:
    """Replace feed-forwards, with the norms around them, by one matrix a token.

    Worth it for many more tangents than the stream has dimensions: a matrix of d × d is far smaller
    than the two of d × d_ff. Each takes token · d² numbers, and no more than ``numbers`` are taken.
    ``progress`` is called after each, with no tangent done.
    """
    found: list[Point] = []
    for alone, group in groupby(walked, key=_alone):
        points = list(group)
        first, last = points[0], points[-1]
        feeds = any(isinstance(point.record, Wrote) for point in points)
        tokens, d = first.x.shape
        if not (alone and feeds) or tokens * d * d > numbers:
            found += points
            continue
        numbers -= tokens * d * d
        unit = torch.eye(d, dtype=first.x.dtype, device=first.x.device)
        end = Point(State(0, last.x), last.x, False)
        ((_, moved),) = push(unit[:, None].expand(d, tokens, d), [*points, end])
        found.append(Point(Turned(moved.transpose(0, 1).contiguous()), first.x, False))
        progress(0)
    return found


def _alone(point: Point) -> bool:
    """Whether a step changes each token by itself, from the stream as it is."""
    record = point.record
    if isinstance(record, Wrote):
        return isinstance(record.detail, Fed) and not point.parallel
    return not isinstance(record, State)


def push(dx: Tangent, walked: Sequence[Point]) -> Iterator[tuple[int, Tangent]]:
    """Carry changes of the stream through the steps of a run; yields them at every hidden state.

    Parameters
    ----------
    dx
        A batch of changes, [tangent, token, d], before the first of the points.
    walked
        The steps, from :func:`points`.
    """
    entered, read_then = dx, None
    for point in walked:
        record, x = point.record, point.x
        match record:
            case State():
                yield record.layer, dx
            case Normed():
                dx = normed(dx, x, record)
            case Projected():
                dx = dx @ record.weight
            case Turned(matrix):
                dx = (dx.transpose(0, 1) @ matrix).transpose(0, 1)
            case Wrote(detail=Attended()):
                entered, read_then = dx, x
                dx = dx + written(dx, x, record)
            case Wrote(detail=Fed()):
                read, at = (entered, read_then) if point.parallel else (dx, x)
                assert at is not None
                dx = dx + written(read, at, record)


def written(
    dx: Tangent, x: Float[Tensor, "token d"], record: Wrote, head: int | None = None
) -> Tangent:
    """How what a sublayer writes changes when the stream x that it reads does."""
    read = dx if record.before is None else normed(dx, x, record.before)
    detail = record.detail
    if isinstance(detail, Attended):
        out = attended(read, detail, of_source=record.term == "source", head=head)
    else:
        assert isinstance(detail, Fed)
        out = fed(read, detail)
    return out if record.after is None else normed(out, record.output, record.after)

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

from prosect.engines.activation import slope
from prosect.engines.linear import (
    output_by_head,
    per_head,
    rest_through_norm,
    rest_through_projection,
    through_projection,
)
from prosect.engines.records import (
    Affine,
    AttentionRecord,
    FeedForwardRecord,
    NormRecord,
    NormRule,
    ProjectionRecord,
    ScoresRecord,
    StateRecord,
    Stream,
    StreamStep,
)
from prosect.errors import UnsupportedModelError

Tangent = Float[Tensor, "tangent token d"]


def norm_tangent(dx: Tangent, x: Float[Tensor, "token d"], norm: NormRecord) -> Tangent:
    """d[g (x − m)/σ + b] = g/σ (dx − mean(dx) − x̂ mean(x̂ dx)), x̂ = (x − m)/σ; no means in RMSNorm."""
    centred = x if norm.mean is None else x - norm.mean
    return _norm_tangent(dx, centred / norm.std, norm.std, norm.rule)


def _norm_tangent(
    dx: Float[Tensor, "*axes d"],
    unit: Float[Tensor, "*axes d"],
    std: Float[Tensor, "*axes 1"],
    rule: NormRule,
) -> Float[Tensor, "*axes d"]:
    along = (unit * dx).mean(-1, keepdim=True)
    if rule.centred:
        dx = dx - dx.mean(-1, keepdim=True)
    dy = (dx - unit * along) / std
    return dy if rule.gain is None else dy * rule.gain


def feed_forward_tangent(dx: Tangent, record: FeedForwardRecord) -> Tangent:
    """d[φ(u) ⊙ v] W_out = (φ'(u) ⊙ v ⊙ du + φ(u) ⊙ dv) W_out, u = x W_in + b, v = x W_gate + b."""
    factor = slope(record.activation, record.u)
    moved = dx @ record.inner.weight(dx)
    moved *= factor if record.v is None else factor * record.v
    if record.gate is not None:
        moved += (dx @ record.gate.weight(dx)).mul_(record.activation(record.u))
    return moved @ record.output_map.weight(dx)


def attention_tangent(dx: Tangent, record: AttentionRecord, head: int | None = None) -> Tangent:
    """d[Σ_h α v W_O] with dα = α ⊙ (ds − Σ α ds), ds = (dq kᵀ + q dkᵀ) · scale.

    In cross-attention keys and values belong to the other text and stay. With a ``head`` only what
    that one writes.

    Raises
    ------
    UnsupportedModelError
        If the rule of the scores is not known.
    """
    rule, alpha, heads = record.scores, record.alpha, record.heads
    if rule is None:
        raise UnsupportedModelError(
            f"The scores of the {record.name} have no derivative here: "
            "use trace.map('contribution'), which needs none."
        )
    query, dquery = _projected(dx, record.read, rule.query, rule.query_norm, heads, rule)
    if record.source_key is not None:
        keys = per_head(record.source_key, heads).transpose(-1, -2)
        ds = dquery @ keys
    else:
        key, dkey = _projected(dx, record.read, rule.key, rule.key_norm, record.kv_heads, rule)
        keys = per_head(key, heads).transpose(-1, -2)
        ds = dquery @ keys
        ds += query @ per_head(dkey, heads).transpose(-1, -2)
    ds *= rule.scale
    if rule.softcap is not None:
        ds *= 1 - torch.tanh(query @ keys * rule.scale / rule.softcap).square()
    # masked pairs have α = 0 and stay there, whatever their scores do
    ds *= alpha
    ds -= alpha * ds.sum(-1, keepdim=True)
    dcontext = ds @ per_head(record.value, heads)
    if record.source_key is None:
        dvalue = (dx @ record.value_map.weight(dx)).unflatten(-1, (record.kv_heads, -1))
        dcontext += alpha @ per_head(dvalue.transpose(-2, -3), heads)
    if head is not None:
        return dcontext[:, head] @ output_by_head(record, dx)[head]
    return dcontext.transpose(-2, -3).flatten(-2) @ record.output_map.weight(dx)


def _projected(
    dx: Tangent,
    read: Float[Tensor, "token d"],
    affine: Affine,
    norm: NormRule | None,
    heads: int,
    rule: ScoresRecord,
) -> tuple[Float[Tensor, "head token d_head"], Float[Tensor, "tangent head token d_head"]]:
    """Query or key as they are multiplied, and how they change: projected, normed, turned."""
    weight = affine.weight(dx)
    made, moved = read @ weight, dx @ weight
    if affine.bias is not None:
        made = made + affine.bias.to(made)
    over_all = norm is not None and norm.gain is not None and len(norm.gain) == made.shape[-1]
    if norm is not None and over_all:
        made, moved = _normed_both(made, moved, norm)
    made, moved = (x.unflatten(-1, (heads, -1)).transpose(-2, -3) for x in (made, moved))
    if norm is not None and not over_all:
        made, moved = _normed_both(made, moved, norm)
    if rule.turn is not None and rule.tables is not None:
        made, moved = (rule.turn(x, *rule.tables) for x in (made, moved))
    return made, moved


def _normed_both(
    x: Float[Tensor, "*axes d"], dx: Float[Tensor, "*tangents d"], norm: NormRule
) -> tuple[Float[Tensor, "*axes d"], Float[Tensor, "*tangents d"]]:
    if norm.centred:
        x = x - x.mean(-1, keepdim=True)
    std = (x.square().mean(-1, keepdim=True) + norm.epsilon).sqrt()
    unit = x / std
    made = unit if norm.gain is None else unit * norm.gain
    return (made if norm.bias is None else made + norm.bias), _norm_tangent(dx, unit, std, norm)


@dataclass(frozen=True, eq=False)
class TokenMatrices:
    """What each token goes through by itself, as one matrix for each token."""

    matrix: Float[Tensor, "token d_in d_out"]


@dataclass(frozen=True, eq=False)
class Point:
    """Where a run was before one of its steps: the stream x."""

    record: StreamStep | StateRecord | TokenMatrices
    x: Float[Tensor, "token d"]


def points(stream: Stream) -> list[Point]:
    """Walk a run once: what the stream was before every step that differentiates it."""
    found: list[Point] = []
    x = stream.start.output
    for record in stream.steps:
        if isinstance(record, StateRecord):
            x = record.hidden
        found.append(Point(record, x))
        x = _after(x, record)
    return found


def _after(x: Float[Tensor, "token d"], record: StreamStep | StateRecord) -> Tensor:
    match record:
        case StateRecord():
            return x
        case NormRecord():
            return rest_through_norm(x, record)
        case ProjectionRecord():
            return rest_through_projection(x, record)
    written = record.output
    return x + (written if record.after is None else rest_through_norm(written, record.after))


def merged(walked: Sequence[Point], numbers: int, progress: Callable[[int], object]) -> list[Point]:
    """Replace feed-forwards, with the norms around them, by one matrix for each token.

    Worth it for many more tangents than the stream has dimensions: a matrix of d × d is far smaller
    than the two of d × d_ff. Each takes token · d² numbers, and no more than ``numbers`` are taken.
    ``progress`` is called after each, with no tangent done.
    """
    found: list[Point] = []
    for alone, group in groupby(walked, key=_alone):
        points = list(group)
        first, last = points[0], points[-1]
        feeds = any(isinstance(point.record, FeedForwardRecord) for point in points)
        tokens, d = first.x.shape
        if not (alone and feeds) or tokens * d * d > numbers:
            found += points
            continue
        numbers -= tokens * d * d
        unit = torch.eye(d, dtype=first.x.dtype, device=first.x.device)
        end = Point(StateRecord(0, last.x), last.x)
        ((_, moved),) = push(unit[:, None].expand(d, tokens, d), [*points, end])
        found.append(Point(TokenMatrices(moved.transpose(0, 1).contiguous()), first.x))
        progress(0)
    return found


def _alone(point: Point) -> bool:
    """Whether a step changes each token by itself, from the stream as it is."""
    record = point.record
    if isinstance(record, FeedForwardRecord):
        return not record.parallel
    return not isinstance(record, AttentionRecord | StateRecord)


def push(dx: Tangent, walked: Sequence[Point]) -> Iterator[tuple[int, Tangent]]:
    """Carry changes of the stream through the steps of a run; yields them at every hidden state.

    Parameters
    ----------
    dx
        A batch of changes, [tangent, token, d], before the first of the points.
    walked
        The steps, from :func:`points`.
    """
    entered, x_entered = dx, walked[0].x
    for point in walked:
        record, x = point.record, point.x
        match record:
            case StateRecord():
                yield record.index, dx
            case NormRecord():
                dx = norm_tangent(dx, x, record)
            case ProjectionRecord():
                dx = through_projection(dx, record)
            case TokenMatrices(matrix):
                dx = (dx.transpose(0, 1) @ matrix).transpose(0, 1)
            case AttentionRecord():
                entered, x_entered = dx, x
                dx = dx + written_tangent(dx, x, record)
            case FeedForwardRecord():
                read, at = (entered, x_entered) if record.parallel else (dx, x)
                dx = dx + written_tangent(read, at, record)


def written_tangent(
    dx: Tangent,
    x: Float[Tensor, "token d"],
    record: AttentionRecord | FeedForwardRecord,
    head: int | None = None,
) -> Tangent:
    """How what a sublayer writes changes when the stream x that it reads does."""
    read = dx if record.before is None else norm_tangent(dx, x, record.before)
    if isinstance(record, AttentionRecord):
        out = attention_tangent(read, record, head)
    else:
        out = feed_forward_tangent(read, record)
    return out if record.after is None else norm_tangent(out, record.output, record.after)

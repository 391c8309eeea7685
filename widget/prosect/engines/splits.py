"""The same sum, split finer: by layer, by head, by source token, by norm, by embedding, by neuron.

Every split starts from what each sublayer wrote, cut the way that is asked for, and carries the
pieces through the norms that follow up to one hidden state. Nothing is approximated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from prosect.anatomy.vocabulary import Term
from prosect.engines.linear import Centring, norm_mean, through_norm, through_projection
from prosect.engines.records import Attended, Embedded, Fed, Normed, Projected, Record, State, Wrote

By = Literal["layer", "head", "source", "norm", "embedding"]


@dataclass(frozen=True)
class Part:
    """What a part is: the term it belongs to, and where in the model it was written.

    Attributes
    ----------
    term
        "input", "attention", "feed_forward", "bias", or "source" (cross-attention).
    layer
        Of the sublayer, from 0 as everywhere; −1 is the embeddings; None where a part is of no
        single layer.
    head, source
        The head, from 0, and the position of the source token, where the split goes that far.
    name
        The embedding, or the norm or bias, where the split is by these.
    """

    term: Term
    layer: int | None = None
    head: int | None = None
    source: int | None = None
    name: str | None = None


Pieces = list[tuple[Part, Float[Tensor, "target d"]]]


def split(
    stream: Sequence[Record],
    by: By,
    state: int,
    targets: Int[Tensor, "target"],
    centring: Centring = "bias",
) -> tuple[list[Part], Float[Tensor, "part target d"]]:
    """Split ``hidden[state]`` of some tokens into parts.

    Parameters
    ----------
    stream
        The records of a run.
    by
        "layer": what each sublayer of each layer wrote. "head": attention by head too. "source":
        each head's part from each source token too. "norm": the four terms, the bias term by norm
        and sublayer. "embedding": the four terms, the input by kind of embedding.
    state
        Which hidden state, from 0.
    targets
        The tokens whose vectors are split.
    centring
        Where the means that norms subtract go.

    Returns
    -------
    The parts and their vectors, which sum to ``hidden[state][targets]``.
    """
    until = next(i for i, r in enumerate(stream) if isinstance(r, State) and r.layer == state)
    parts: list[Part] = []
    stacks: list[Tensor] = []
    for i, record in enumerate(stream[:until]):
        if isinstance(record, State):
            continue
        labels, vectors = _cut(record, by, targets, centring)
        if labels:
            following = [r for r in stream[i + 1 : until] if isinstance(r, Normed | Projected)]
            stacks.append(_carry(vectors, following, targets, centring))
            parts += labels
    return _merge(parts, torch.cat(stacks))


def _carry(
    vectors: Float[Tensor, "part target d"],
    following: Sequence[Normed | Projected],
    targets: Tensor,
    centring: Centring,
) -> Float[Tensor, "part target d"]:
    for record in following:
        if isinstance(record, Normed):
            vectors = through_norm(vectors, _at(record, targets), centring)
        else:
            vectors = through_projection(vectors, record)
    return vectors


def _at(norm: Normed, targets: Tensor) -> Normed:
    """The norm as it acted on some of the tokens."""
    mean = None if norm.mean is None else norm.mean[targets]
    return replace(norm, mean=mean, variance=norm.variance[targets])


def _cut(
    record: Wrote | Normed | Projected, by: By, targets: Tensor, centring: Centring
) -> tuple[list[Part], Float[Tensor, "part target d"]]:
    """The pieces that a step adds to the stream, before anything that follows."""
    pieces: Pieces = []
    if isinstance(record, Wrote):
        after = None if record.after is None else _at(record.after, targets)
        bias = 0 if record.bias is None else record.bias
        written = list(_written(record, by, targets, record.output[targets] - bias))
        if record.bias is not None:
            shape = record.output[targets].shape
            written.append((_constant(record, by, "bias"), record.bias.expand(shape)))
        if after is None:
            pieces = written
        else:
            pieces = [(part, through_norm(vector, after, centring)) for part, vector in written]
            pieces += _norm_pieces(record, after, by, centring)
    elif isinstance(record, Normed):
        pieces = _norm_pieces(record, _at(record, targets), by, centring)
    elif record.bias is not None:
        part = _constant(record, by, "bias")
        pieces = [(part, record.bias.expand(len(targets), -1))]
    if not pieces:
        return [], torch.empty(0)
    return [part for part, _ in pieces], torch.stack([vector for _, vector in pieces])


def _norm_pieces(record: Wrote | Normed, norm: Normed, by: By, centring: Centring) -> Pieces:
    mean, shape = norm_mean(norm, centring), (len(norm.std), -1)
    pieces: Pieces = []
    if norm.bias is not None:
        named = record if isinstance(record, Normed) else norm
        pieces.append((_constant(named, by, "bias"), norm.bias.expand(shape)))
    if mean is not None:
        named = record if isinstance(record, Normed) else norm
        pieces.append((_constant(named, by, "mean"), mean))
    return pieces


def _constant(record: Wrote | Normed | Projected, by: By, what: str) -> Part:
    """The label of what belongs to no token: one bias term, or each of its pieces by name."""
    return Part("bias", name=f"{record.name} {what}" if by == "norm" else None)


def _written(
    record: Wrote, by: By, targets: Tensor, whole: Float[Tensor, "target d"]
) -> Iterator[tuple[Part, Float[Tensor, "target d"]]]:
    """What one sublayer wrote, less its bias, cut the way that is asked for."""
    detail, term, layer = record.detail, record.term, record.layer - 1
    if by in ("norm", "embedding"):
        if by == "embedding" and isinstance(detail, Embedded) and detail.pieces:
            for name, piece in detail.pieces.items():
                yield Part("input", name=name), piece[targets]
        else:
            yield Part(term), whole
    elif by in ("head", "source") and isinstance(detail, Attended):
        by_head = heads_of(detail) if by == "head" else None
        for head in range(len(detail.alpha)):
            if by_head is not None:
                yield Part(term, layer, head), by_head[head][targets]
                continue
            for source, vector in enumerate(sources_of(detail, head, targets)):
                yield Part(term, layer, head, source), vector
    else:
        yield Part(term, layer), whole


def heads_of(attended: Attended) -> Float[Tensor, "head token d"]:
    """What each head wrote, without its value bias: (context_h − b_V) W_O."""
    heads = len(attended.alpha)
    context = attended.context.unflatten(-1, (heads, -1)).transpose(0, 1)
    if attended.value_bias is not None:
        context = context - _per_head(attended.value_bias, heads)[:, None]
    return context @ _output(attended)


def sources_of(
    attended: Attended, head: int, targets: Int[Tensor, "target"]
) -> Float[Tensor, "source target d"]:
    """What each source token sent through one head: α_ts (v_s − b_V) W_O."""
    heads = len(attended.alpha)
    kv_head = head * len(attended.value) // heads
    value = attended.value[kv_head]
    if attended.value_bias is not None:
        value = value - attended.value_bias[kv_head]
    sent = value @ _output(attended)[head]
    return attended.alpha[head][targets].T[:, :, None] * sent[:, None]


def _output(attended: Attended) -> Float[Tensor, "head d_head d"]:
    heads = len(attended.alpha)
    return attended.weight.to(attended.context).unflatten(0, (heads, -1))


def _per_head(bias: Float[Tensor, "kv_head d_head"], heads: int) -> Float[Tensor, "head d_head"]:
    return bias.repeat_interleave(heads // len(bias), dim=0)


def neurons_of(
    fed: Fed, token: int, k: int
) -> tuple[Int[Tensor, "k"], Float[Tensor, "k d"], Float[Tensor, "d"]]:
    """The k neurons that write most to one token, what each writes, and the exact rest of them all."""
    weight = fed.weight.to(fed.neurons)
    activations = fed.neurons[token]
    lengths = activations.abs() * torch.linalg.vector_norm(weight, dim=-1)
    ids = lengths.topk(min(k, len(lengths))).indices
    written = activations[ids, None] * weight[ids]
    others = activations.index_fill(0, ids, 0.0) @ weight
    return ids, written, others


def _merge(
    parts: list[Part], vectors: Float[Tensor, "piece target d"]
) -> tuple[list[Part], Float[Tensor, "part target d"]]:
    """Add up pieces of the same part, parts in the order of their first piece."""
    places = {part: place for place, part in enumerate(dict.fromkeys(parts))}
    index = torch.tensor([places[part] for part in parts], device=vectors.device)
    merged = vectors.new_zeros(len(places), *vectors.shape[1:]).index_add_(0, index, vectors)
    return list(places), merged

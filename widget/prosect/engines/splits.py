"""The same sum, split finer: by layer, by head, by source token, by norm, by embedding, by neuron.

Every split starts from what each sublayer wrote, cut the way that is asked for, and carries the
pieces through the norms that follow up to one hidden state. Nothing is approximated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from prosect.engines.linear import (
    Centring,
    norm_mean,
    output_by_head,
    per_head,
    through_norm,
    through_projection,
    values_by_head,
)
from prosect.engines.records import (
    AttentionRecord,
    EmbeddingRecord,
    FeedForwardRecord,
    NormRecord,
    ProjectionRecord,
    Record,
    StateRecord,
    Stream,
    Term,
)

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
    stream: Stream,
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
    records: list[Record] = []
    for record in stream:
        if isinstance(record, StateRecord) and record.index == state:
            break
        records.append(record)
    parts: list[Part] = []
    stacks: list[Tensor] = []
    for i, record in enumerate(records):
        pieces = _pieces(record, by, targets, centring)
        if pieces:
            vectors = torch.stack([vector for _, vector in pieces])
            stacks.append(_carry(vectors, records[i + 1 :], targets, centring))
            parts += [part for part, _ in pieces]
    return _merge(parts, torch.cat(stacks))


def _carry(
    vectors: Float[Tensor, "part target d"],
    following: Sequence[Record],
    targets: Tensor,
    centring: Centring,
) -> Float[Tensor, "part target d"]:
    """Take parts through the norms and projections of the whole stream that follow."""
    for record in following:
        if isinstance(record, NormRecord):
            vectors = through_norm(vectors, record.at(targets), centring)
        elif isinstance(record, ProjectionRecord):
            vectors = through_projection(vectors, record)
    return vectors


def _pieces(record: Record, by: By, targets: Tensor, centring: Centring) -> Pieces:
    """The pieces that a step adds to the stream, before anything that follows."""
    match record:
        case StateRecord():
            return []
        case NormRecord():
            return _norm_pieces(record, record.name, targets, by, centring)
        case ProjectionRecord():
            bias = record.map.bias
            if bias is None:
                return []
            return [(_constant(record.name, by, "bias"), bias.expand(len(targets), -1))]
    bias = record.bias
    whole = record.output[targets]
    written = list(_written(record, by, targets, whole if bias is None else whole - bias))
    if bias is not None:
        written.append((_constant(record.name, by, "bias"), bias.expand_as(whole)))
    if record.after is None:
        return written
    after = record.after.at(targets)
    pieces = [(part, through_norm(vector, after, centring)) for part, vector in written]
    return pieces + _norm_pieces(record.after, record.after.name, targets, by, centring)


def _norm_pieces(
    norm: NormRecord, name: str, targets: Tensor, by: By, centring: Centring
) -> Pieces:
    at = norm.at(targets)
    mean = norm_mean(at, centring)
    pieces: Pieces = []
    if at.bias is not None:
        pieces.append((_constant(name, by, "bias"), at.bias.expand(len(targets), -1)))
    if mean is not None:
        pieces.append((_constant(name, by, "mean"), mean))
    return pieces


def _constant(name: str, by: By, what: str) -> Part:
    """The label of what belongs to no token: one bias term, or each of its pieces by name."""
    return Part("bias", name=f"{name} {what}" if by == "norm" else None)


def _written(
    record: EmbeddingRecord | AttentionRecord | FeedForwardRecord,
    by: By,
    targets: Tensor,
    whole: Float[Tensor, "target d"],
) -> Iterator[tuple[Part, Float[Tensor, "target d"]]]:
    """What one record wrote, less its bias, cut the way that is asked for."""
    term, layer = record.term, record.layer
    match record:
        case EmbeddingRecord(pieces=pieces) if by == "embedding" and pieces:
            for name, piece in pieces.items():
                yield Part("input", name=name), piece[targets]
        case AttentionRecord() if by == "head":
            for head, vectors in enumerate(heads_of(record)):
                yield Part(term, layer, head), vectors[targets]
        case AttentionRecord() if by == "source":
            for head in range(record.heads):
                for source, vector in enumerate(sources_of(record, head, targets)):
                    yield Part(term, layer, head, source), vector
        case _ if by in ("norm", "embedding"):
            yield Part(term), whole
        case _:
            yield Part(term, layer), whole


def heads_of(attention: AttentionRecord) -> Float[Tensor, "head token d"]:
    """What each head wrote, without its value bias: (context_h − b_V) W_O."""
    context = attention.context.unflatten(-1, (attention.heads, -1)).transpose(0, 1)
    if attention.value_bias is not None:
        context = context - per_head(attention.value_bias[:, None], attention.heads)
    return context @ output_by_head(attention, context)


def sources_of(
    attention: AttentionRecord, head: int, targets: Int[Tensor, "target"]
) -> Float[Tensor, "source target d"]:
    """What each source token sent through one head: α_ts (v_s − b_V) W_O."""
    value = values_by_head(attention, value_bias=False)[head]
    sent = value @ output_by_head(attention, value)[head]
    return attention.alpha[head][targets].T[:, :, None] * sent[:, None]


def neurons_of(
    feed_forward: FeedForwardRecord, token: int, k: int
) -> tuple[Int[Tensor, "k"], Float[Tensor, "k d"], Float[Tensor, "d"]]:
    """The k neurons that write most to one token, what each writes, and the exact rest of them all."""
    activations = feed_forward.neurons[token]
    weight = feed_forward.output_map.weight(activations)
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

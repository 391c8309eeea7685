"""Comparisons of the maps of one layer, and products of maps over layers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from prosect.analyses.cache import Analyses
from prosect.analyses.kinds import PER_LAYER, kinds, token_map
from prosect.analyses.maps import TokenMap, visible
from prosect.engines import contributions, measures
from prosect.errors import ProsectError
from prosect.modes import in_plain_arithmetic
from prosect.tokens import Token
from prosect.validation import check_count, check_share

PairKind = Literal["piece", "expression", "same", "neighbour", "other"]


@dataclass(frozen=True)
class Pair:
    """A target and a source whose value in the map of a layer has changed.

    Attributes
    ----------
    layer
        From 0.
    target, source
        Positions.
    change
        After − before.
    kind
        "piece": of one word; "expression": words of one annotated expression; "same": the same
        token twice; "neighbour": next to each other; "other".
    """

    layer: int
    target: int
    source: int
    change: float
    kind: PairKind


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The difference between the maps before and after a component of the layer.

    Attributes
    ----------
    values
        [layer, target, source], after − before.
    before, after
        The names of the kinds.
    change
        [layer], 1 − Spearman's ρ of the two maps (contextualization change): 0 is none. NaN where
        just one of them has no order at all, as where attention writes nothing.
    tokens
        Of the text.
    seen
        [layer, target, source], the pairs that the maps are compared on: those that the layer, or the
        layers so far, can see.
    """

    values: Float[Tensor, "layer target source"]
    before: str
    after: str
    change: Float[Tensor, "layer"]
    tokens: Sequence[Token]
    seen: Bool[Tensor, "layer target source"]

    def __repr__(self) -> str:
        changes = ", ".join(f"{change:.3f}" for change in self.change.tolist())
        return f"Comparison({self.after} − {self.before}: change by layer {changes})"

    def pairs(self, k: int = 10, labels: Sequence[Hashable | None] | None = None) -> list[Pair]:
        """The k pairs of different tokens of every layer that were amplified most.

        Only pairs that the layer can see and that grew: fewer than k where there are no more.

        Parameters
        ----------
        k
            The largest number of pairs per layer.
        labels
            One label, or None, per word of the text: words with the same label are one expression or
            compound.

        Raises
        ------
        ProsectError
            If there is not one label per word, or k is not at least 1.
        """
        check_count(k, "k")
        kinds = pair_kinds(self.tokens, labels)
        found = []
        for layer, (change, seen) in enumerate(zip(self.values, self.seen, strict=True)):
            others = change.masked_fill(~seen, 0.0).fill_diagonal_(0.0)
            places, amounts = measures.top_pairs(others, k)
            for (target, source), amount in zip(places.tolist(), amounts.tolist(), strict=True):
                if amount > 0:
                    found.append(Pair(layer, target, source, amount, kinds[target][source]))
        return found


def pair_kinds(
    tokens: Sequence[Token], labels: Sequence[Hashable | None] | None = None
) -> list[list[PairKind]]:
    """The relation of every pair of tokens, by target and source.

    Parameters
    ----------
    tokens
        Of a text.
    labels
        One label, or None, per word of the text; words with the same label are one expression.

    Raises
    ------
    ProsectError
        If there is not one label per word.
    """
    words = 1 + max((token.word for token in tokens if token.word is not None), default=-1)
    if labels is not None and (isinstance(labels, str) or not hasattr(labels, "__len__")):
        raise ProsectError(f"labels must be a list with one label per word, got {labels!r}.")
    if labels is not None and len(labels) != words:
        raise ProsectError(
            f"labels must have one label per word, got {len(labels)} labels for {words} words."
        )

    def kind(i: int, j: int) -> PairKind:
        a, b = tokens[i], tokens[j]
        if a.word is not None and a.word == b.word:
            return "piece"
        if labels is not None and a.word is not None and b.word is not None:
            label = labels[a.word]
            if label is not None and label == labels[b.word]:
                return "expression"
        if a.id == b.id:
            return "same"
        return "neighbour" if abs(i - j) == 1 else "other"

    return [[kind(i, j) for j in range(len(tokens))] for i in range(len(tokens))]


@dataclass(frozen=True, eq=False, repr=False)
class GainRelation:
    """The gain of the norm after a feed-forward beside the size of its output, by dimension.

    Attributes
    ----------
    layer
        From 0.
    correlation
        Pearson's r of |gain| and size; NaN where all gains are the same.
    outliers
        The dimensions whose size is more than three standard deviations above the mean.
    gain, size
        [d], the gain, and the mean |output| over tokens.
    """

    layer: int
    correlation: float
    outliers: list[int]
    gain: Float[Tensor, "d"]
    size: Float[Tensor, "d"]

    def __repr__(self) -> str:
        count = len(self.outliers)
        return f"GainRelation(layer {self.layer}: correlation {self.correlation:.3f}, {count} outliers)"


# --- of a run -----------------------------------------------------------------------------------


def compare(analyses: Analyses, tokens: Sequence[Token], before: str, after: str) -> Comparison:
    """The difference between two kinds of map by layer, such as "ATB" and "ATBFF".

    Raises
    ------
    ProsectError
        If there is no such kind, or one has heads and the other has not.
    """
    a, b = token_map(analyses, before), token_map(analyses, after)
    if a.axes != b.axes or "head" in a.axes:
        raise ProsectError(f"{before!r} and {after!r} are not both maps of whole layers.")
    seen = torch.stack(list(visible(analyses)))
    known = kinds(analyses)
    if known[before].whole or known[after].whole:
        # earlier layers let a token see beyond the window of this one
        seen |= (a.values != 0) | (b.values != 0)
    # pairs that cannot be seen are zero before and after: they are no agreement
    change = [
        measures.contextualization_change(x[own], y[own])
        for x, y, own in zip(a.values, b.values, seen, strict=True)
    ]
    return Comparison(b.values - a.values, before, after, torch.tensor(change), tokens, seen)


def cancellation(analyses: Analyses) -> dict[str, Float[Tensor, "layer"]]:
    """How much of the feed-forward's change to the map the later steps of the layer undo.

    By the name of the scope, the share of the change that is undone between the feed-forward and that
    scope: 1 means all, 0 nothing; a negative share means that the change is amplified. The rows of
    the maps are first scaled to sum to 1. The share is 0 if the feed-forward changes nothing.
    """
    scopes = [kind for kind in kinds(analyses).values() if kind.position is not None]
    first = next(i for i, kind in enumerate(scopes) if kind.feed_forward)
    before, after = (
        token_map(analyses, kind.name).values for kind in scopes[first - 1 : first + 1]
    )
    found = {}
    for kind in scopes[first + 1 :]:
        later = token_map(analyses, kind.name).values
        rows = zip(before, after, later, strict=True)
        found[kind.name] = torch.tensor([measures.undone(x, y, z) for x, y, z in rows])
    return found


def gains(analyses: Analyses) -> list[GainRelation]:
    """How the norm after each feed-forward scales the dimensions of its output.

    One result per layer in which a norm with a gain follows the feed-forward. (Kobayashi et al. 2024:
    the gain shrinks the outlier dimensions of the feed-forward.) Empty for pre-norm models, such as
    GPT-2 and LLaMA.
    """
    found = []
    for number, layer in enumerate(analyses.run.stream.layers):
        written = layer.feed_forward
        norm = layer.last_norm or written.after
        if norm is None or norm.gain is None:
            continue
        size = written.output.abs().mean(0)
        found.append(
            GainRelation(
                layer=number,
                correlation=measures.pearson(norm.gain.abs(), size),
                outliers=measures.outlier_dimensions(size).tolist(),
                gain=norm.gain,
                size=size,
            )
        )
    return found


def rollout(analyses: Analyses, kind: str = "ATB", residual: float = 0.0) -> TokenMap:
    """Roll a map of single layers out over them (Abnar & Zuidema 2020; GlobEnc, 2022).

    Parameters
    ----------
    kind
        One whose ``rolls_out`` is true; of "attention" the mean over heads is taken.
    residual
        The share of the identity mixed into each map once its rows sum to 1; 0.5 for attention, 0 for
        maps that include the residual connection. A row of zeros, where attention writes nothing,
        stays one.

    Raises
    ------
    ProsectError
        If the kind cannot be rolled out, or the residual is not between 0 and 1.
    """
    check_share(residual, "residual")
    found = token_map(analyses, kind)
    known = [name for name, one in kinds(analyses).items() if one.rolls_out]
    if kind not in known:
        raise ProsectError(
            f"The kind {kind!r} cannot be rolled out: choose one of {', '.join(known)}."
        )
    values = found.values.mean(1) if "head" in found.axes else found.values
    rolled = contributions.rollout(values, residual)
    return TokenMap(rolled, f"rollout of {kind}", PER_LAYER, found.error)

"""Maps of a trace: every kind, computed once, and what comparing two of them says."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from prosect.analyses.attribution import Attribution, attribute
from prosect.analyses.certificate import certified
from prosect.analyses.effective import Freedom, NullSpace
from prosect.analyses.kinds import Kind, changes_of, kinds_of, scope_names
from prosect.anatomy.vocabulary import Anatomy
from prosect.capture.run import Run
from prosect.engines import contributions, effective, measures, scopes, zeroing
from prosect.engines.activation import Baseline
from prosect.engines.records import LayerRecord
from prosect.engines.scopes import Scope
from prosect.engines.terms import reconstruction_error
from prosect.errors import ProsectError
from prosect.tokens import Token
from prosect.validation import check_count, check_flag, check_known

Measure = Literal["norm", "alti"]
PairKind = Literal["piece", "expression", "same", "neighbour", "other"]


@dataclass(frozen=True, eq=False, repr=False)
class TokenMap:
    """A token-to-token map of every layer.

    Attributes
    ----------
    values
        [layer, head, target, source], or [layer, target, source] for kinds without heads. They are
        kept by the trace, and those of "attention" are its own: clone them before you edit them.
    kind
        The name of the kind.
    axes
        The names of the axes of ``values``.
    error
        The certificate. For scopes and contributions: the largest |Σ parts + rest − y| / |y|. For
        attention weights: how far a row's sum is from 1 at most. For value zeroing, an intervention
        that splits nothing: 0.
    rest
        [layer, target], the length of the part that belongs to no token; None for kinds without.
    own, others
        [layer, target], the length of what a token sends to itself, and that of the sum of all that
        the others send; None for kinds without.
    """

    values: Tensor
    kind: str
    axes: tuple[str, ...]
    error: float
    rest: Float[Tensor, "layer target"] | None = None
    own: Float[Tensor, "layer target"] | None = None
    others: Float[Tensor, "layer target"] | None = None

    def __repr__(self) -> str:
        axes = ", ".join(f"{a} {n}" for a, n in zip(self.axes, self.values.shape, strict=True))
        return f"TokenMap({self.kind}: {axes}, error {self.error:.1e})"

    def with_rest(self) -> TokenMap:
        """The same map with the token-less part as one more column, the last.

        Raises
        ------
        ProsectError
            If the kind has no such part.
        """
        if self.rest is None:
            raise ProsectError(f"The kind {self.kind!r} has no part that belongs to no token.")
        values = torch.cat([self.values, self.rest[..., None]], dim=-1)
        return TokenMap(values, self.kind, self.axes, self.error, self.rest, self.own, self.others)

    def mixing(self) -> Float[Tensor, "layer target"]:
        """The context-mixing ratio of every token (Kobayashi et al. 2021): 0 only itself, 1 only others.

        Vectors are summed before their length is taken. Where nothing is written, nothing is mixed: 0.

        Raises
        ------
        ProsectError
            If the kind splits no vectors.
        """
        if self.own is None or self.others is None:
            raise ProsectError(
                f"The kind {self.kind!r} has no mixing ratio: choose a norm-based one."
            )
        return measures.mixing_ratio(self.own, self.others)


@dataclass(frozen=True)
class Pair:
    """Two tokens of one layer whose map a component changed.

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


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What a component did to the maps: two kinds, before and after it.

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
            How many a layer at most.
        labels
            For every word of the text a label, or None: words with the same label are one
            expression or compound.

        Raises
        ------
        ProsectError
            If there is not one label a word, or k is not at least 1.
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
    """What every pair of tokens is to each other, by target and source.

    Parameters
    ----------
    tokens
        Of a text.
    labels
        For every word of the text a label, or None; words with the same label are one expression.

    Raises
    ------
    ProsectError
        If there is not one label a word.
    """
    words = 1 + max((token.word for token in tokens if token.word is not None), default=-1)
    if labels is not None and (isinstance(labels, str) or not hasattr(labels, "__len__")):
        raise ProsectError(f"labels are given as a list, one a word, not as {labels!r}.")
    if labels is not None and len(labels) != words:
        raise ProsectError(f"The text has {words} words and {len(labels)} labels: give one a word.")

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


class Maps:
    """The maps of one run; each is computed once and kept."""

    def __init__(self, run: Run, anatomy: Anatomy, dtype: torch.dtype) -> None:
        self._run, self._dtype = run, dtype
        self.kinds: dict[str, Kind] = kinds_of(anatomy)
        self._scope_names = scope_names(anatomy.blocks[0])
        self._changes = changes_of(anatomy.blocks[0])
        self._kept: dict[tuple[Any, ...], Any] = {}

    def map(
        self,
        name: str,
        *,
        value_bias: bool = True,
        baseline: Baseline = "zero",
        measure: Measure = "norm",
    ) -> TokenMap:
        """The map of a kind; see :meth:`prosect.Trace.map`."""
        check_known(name, list(self.kinds), "kind")
        check_flag(value_bias, "value_bias")
        check_known(baseline, get_args(Baseline), "baseline")
        check_known(measure, get_args(Measure), "measure")
        kind = self.kinds[name]
        chosen = {"value_bias": not value_bias, "baseline": baseline != "zero"}
        for option in (one for one, given in chosen.items() if given and one not in kind.options):
            takers = [other.name for other in self.kinds.values() if option in other.options]
            raise ProsectError(
                f"{option} has no effect on the kind {name!r}: leave it out, or choose one of "
                f"{', '.join(takers)}."
            )
        if measure != "norm" and kind.name not in self._scope_names:
            raise ProsectError(
                f"The measure {measure!r} is of the parts of one layer, which the kind {name!r} does "
                f"not have: choose one of {', '.join(self._scope_names)}."
            )
        key = ("map", name, value_bias, baseline, measure)
        if key not in self._kept:
            self._kept[key] = self._made(kind, value_bias, baseline, measure)
        return self._kept[key]

    def computed(self, name: str) -> bool:
        """Whether a map is kept, with its default options."""
        if ("map", name, True, "zero", "norm") in self._kept:
            return True
        return "FF" in name and (True, True, "zero", "norm") in self._kept

    def _made(self, kind: Kind, value_bias: bool, baseline: Baseline, measure: Measure) -> TokenMap:
        name = kind.name
        if name == "attention":
            return self._attention()
        if name == "norm":
            values = [scopes.norm_map(layer.attention, value_bias) for layer in self.layers()]
            measured = self._scopes(False, value_bias, "zero", "norm")
            error = certified(
                max(layer["ATTN"].error for layer in measured), f"the map {name}", self._dtype
            )
            return TokenMap(torch.stack(values), name, _PER_HEAD, error)
        if name == "contribution":
            return self._contribution(baseline)
        if kind.group == "changes":
            before, after = (
                self._made(self.kinds[one], value_bias, baseline, "norm")
                for one in self._changes[name]
            )
            error = max(before.error, after.error)
            return TokenMap(after.values - before.values, name, _PER_LAYER, error)
        if name in ("effective", "null"):
            return self._effective(name, value_bias)
        if name == "attribution":
            found = self.attribution()
            return TokenMap(found.values, name, _PER_LAYER, 0.0)
        if name == "value_zeroing":
            values = [zeroing.value_zeroing(layer) for layer in self.layers()]
            return TokenMap(torch.stack(values), name, _PER_LAYER, 0.0)
        measured = [
            layer[name] for layer in self._scopes(kind.costly, value_bias, baseline, measure)
        ]
        return TokenMap(
            values=torch.stack([scope.values for scope in measured]),
            kind=name,
            axes=_PER_LAYER,
            error=certified(max(s.error for s in measured), f"the map {name}", self._dtype),
            rest=torch.stack([scope.rest for scope in measured]),
            own=torch.stack([scope.own for scope in measured]),
            others=torch.stack([scope.others for scope in measured]),
        )

    def layers(self) -> list[LayerRecord]:
        """The run, block by block."""
        return self._run.stream.layers

    def _scopes(
        self, feed_forward: bool, value_bias: bool, baseline: Baseline, measure: Measure
    ) -> list[dict[str, Scope]]:
        key = (feed_forward, value_bias, baseline, measure)
        if key not in self._kept:
            self._kept[key] = [
                scopes.scopes_of(
                    layer,
                    feed_forward=feed_forward or layer.feed_forward.parallel,
                    value_bias=value_bias,
                    baseline=baseline,
                    measure=scopes.l1_share if measure == "alti" else None,
                )
                for layer in self.layers()
            ]
        return self._kept[key]

    def _attention(self) -> TokenMap:
        alpha = self._run.attention
        return TokenMap(alpha, "attention", _PER_HEAD, float((alpha.sum(-1) - 1).abs().max()))

    def tolerance(self) -> float:
        """The share of the largest singular value below which another is rounding error."""
        value = self.layers()[0].attention.value
        return effective.default_tolerance(value.shape[1], value.shape[2], self._dtype)

    def effective(
        self, value_bias: bool = True, tolerance: float | None = None
    ) -> tuple[Float[Tensor, "layer head target source"], Int[Tensor, "layer head"], float]:
        """Effective attention of every head, the ranks of T, and the largest |A⊥T − AT| / |AT|."""
        key = ("effective", value_bias, tolerance)
        if key not in self._kept:
            found, ranks, worst = torch.empty_like(self._run.attention), [], 0.0
            limit = self.tolerance() if tolerance is None else tolerance
            for kept, layer in zip(found, self.layers(), strict=True):
                attended = layer.attention
                alpha, t = attended.alpha, effective.coordinates(attended, value_bias)
                projected, rank = effective.effective_attention(alpha, t, limit, attended.visible)
                kept.copy_(projected)
                worst = max(worst, effective.deviation(alpha, kept, t))
                ranks.append(rank)
            self._kept[key] = found, torch.stack(ranks), worst
        return self._kept[key]

    def freedom(self, value_bias: bool = True, tolerance: float | None = None) -> Freedom:
        """Ranks and dimensions of the null spaces of all heads."""
        limit = self.tolerance() if tolerance is None else tolerance
        n, found, sees = self._run.hidden.shape[1], [], []
        for layer in self.layers():
            attended = layer.attention
            _, seen = effective.freest(n, attended.visible)
            t = effective.coordinates(attended, value_bias)[:, seen.to(attended.value.device)]
            found.append(effective.freedom(t, limit))
            sees.append(len(seen))
        rank, dimension, with_sums = (torch.stack(list(x)) for x in zip(*found, strict=True))
        return Freedom(n, rank, dimension, with_sums, torch.tensor(sees))

    def nullspace(
        self, layer: int, head: int, value_bias: bool = True, tolerance: float | None = None
    ) -> NullSpace:
        """The null space of one head."""
        limit = self.tolerance() if tolerance is None else tolerance
        attended = self.layers()[layer].attention
        return NullSpace.of(attended, layer, head, limit, value_bias)

    def visible(self) -> list[Bool[Tensor, "target source"]]:
        """Of every layer, which sources each target may attend to."""
        shape = self._run.attention.shape[-2:]
        masks = [layer.attention.visible for layer in self.layers()]
        return [
            torch.ones(shape, dtype=torch.bool, device=self._run.attention.device)
            if mask is None
            else mask
            for mask in masks
        ]

    def _effective(self, name: str, value_bias: bool) -> TokenMap:
        kept, _, error = self.effective(value_bias)
        values = kept if name == "effective" else self._run.attention - kept
        return TokenMap(values, name, _PER_HEAD, certified(error, f"the map {name}", self._dtype))

    def attribution(self, progress: bool | None = None, **options: Any) -> Attribution:
        """Hidden Token Attribution; exact and of all layers unless the options say otherwise."""
        chosen = {
            "probes": None,
            "layers": range(options.get("start", 0), len(self.layers())),
            "start": 0,
            "times_input": False,
            "head": None,
            "seed": 0,
        } | options
        every = tuple(range(chosen["start"], len(self.layers())))
        layers = tuple(chosen["layers"])
        others = tuple(value for name, value in chosen.items() if name != "layers")
        key, complete = (("attribution", others, some) for some in (layers, every))
        if key not in self._kept and complete in self._kept:
            self._kept[key] = self._kept[complete].after(layers)
        if key not in self._kept:
            self._kept[key] = attribute(self._run, progress=progress, **chosen)
        return self._kept[key]

    def _contribution(self, baseline: Baseline) -> TokenMap:
        hidden, stream = self._run.hidden, self._run.stream
        layers, n, _ = hidden.shape
        rests, _ = contributions.rest_of(stream, baseline)
        total = torch.stack(rests)
        values = hidden.new_zeros(layers, n, n)
        own = hidden.new_zeros(hidden.shape)
        blocks = contributions.contributions(stream, range(n), baseline)
        for sources, states in blocks:
            for layer, parts in enumerate(states):
                values[layer][:, sources] = parts.norm(dim=-1).T
                own[layer][sources] = parts[range(len(sources)), sources]
                total[layer] += parts.sum(0)
        others = total - torch.stack(rests) - own
        error = float(reconstruction_error(total, hidden).max())
        return TokenMap(
            values=values[1:],
            kind="contribution",
            axes=_PER_LAYER,
            error=certified(error, "the contributions", self._dtype),
            rest=torch.stack(rests)[1:].norm(dim=-1),
            own=own[1:].norm(dim=-1),
            others=others[1:].norm(dim=-1),
        )

    def last_parts(
        self, position: int, baseline: Baseline = "zero"
    ) -> tuple[Float[Tensor, "source d"], Float[Tensor, "d"]]:
        """The parts of every input token in one last hidden state, and the token-less rest."""
        check_known(baseline, get_args(Baseline), "baseline")
        stream, n = self._run.stream, self._run.hidden.shape[1]
        rests, _ = contributions.rest_of(stream, baseline)
        blocks = contributions.contributions(stream, range(n), baseline)
        parts = torch.cat([states[-1][:, position] for _, states in blocks])
        return parts, rests[-1][position]

    def gains(self) -> list[GainRelation]:
        """How the gain of the norm after each feed-forward relates to its output's dimensions."""
        found = []
        for number, layer in enumerate(self.layers()):
            fed = layer.feed_forward
            norm = layer.last_norm or fed.after
            if norm is None or norm.gain is None:
                continue
            size = fed.output.abs().mean(0)
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


_PER_HEAD = ("layer", "head", "target", "source")
_PER_LAYER = ("layer", "target", "source")

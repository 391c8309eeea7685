"""The kinds of token-to-token map: a table of their descriptions and computations.

A new kind is one row here and one function that computes it. Python, the command line and the views
take their descriptions from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Literal

from prosect.analyses import attribution, effective, maps
from prosect.analyses.cache import Analyses, Sizes
from prosect.analyses.certificate import certified
from prosect.analyses.maps import Options, TokenMap, Values
from prosect.anatomy.vocabulary import Anatomy, Block, FeedForward, Norm
from prosect.errors import ProsectError
from prosect.validation import check_known

Group = Literal["weights", "norms", "changes", "interventions", "identifiability", "gradients"]
Compute = Callable[[Analyses, Options], Values]
Cost = Callable[[Sizes], float]
"""The approximate number of multiplications, from the sizes of the run."""

PER_HEAD = ("layer", "head", "target", "source")
PER_LAYER = ("layer", "target", "source")
PROBES = 16
"""The number of random probes per token in an estimated attribution map."""


@dataclass(frozen=True)
class Estimate:
    """A cheaper estimate of a map, for the views.

    Attributes
    ----------
    compute
        The function that computes it.
    cost
        The number of multiplications.
    note
        A note that is appended to the kind's hint.
    """

    compute: Compute
    cost: Cost
    note: str


@dataclass(frozen=True)
class Kind:
    """A kind of map.

    Attributes
    ----------
    name
        The name, as in ``trace.map(name)``.
    label
        The label in the views.
    group
        "weights", "norms", "changes", "interventions", "identifiability" or "gradients".
    hint
        One sentence on what the map shows.
    reading
        One sentence on how to read it.
    reference
        The paper and section that define it.
    compute
        The function that computes it.
    certificate
        What the map's ``error`` measures.
    axes
        The names of its axes.
    options
        The options that it takes, from "value_bias", "baseline" and "measure".
    signed
        Whether values may be negative.
    whole
        Whether the map of a layer describes all layers up to it, instead of that layer alone.
    rolls_out
        Whether the product of its maps over the layers is meaningful (rollout).
    cost
        The number of multiplications; None if it is negligible.
    estimate
        A cheaper estimate, for views of long texts.
    position
        For scopes: the position in the layer's computation, from 0.
    feed_forward
        Whether the map includes the effect of the feed-forward.
    """

    name: str
    label: str
    group: Group
    hint: str
    reading: str
    reference: str
    compute: Compute = field(repr=False)
    certificate: str
    axes: tuple[str, ...] = PER_LAYER
    options: tuple[str, ...] = ()
    signed: bool = False
    whole: bool = False
    rolls_out: bool = False
    cost: Cost | None = field(default=None, repr=False)
    estimate: Estimate | None = field(default=None, repr=False)
    position: int | None = None
    feed_forward: bool = False

    @property
    def per_head(self) -> bool:
        """Whether the kind has one map per head, instead of one per layer."""
        return "head" in self.axes

    def __str__(self) -> str:
        """The description of the kind, with its reference."""
        return f"{self.label}: {self.hint} {self.reading} ({self.reference})"


# --- the costs ------------------------------------------------------------------------------------


def _through_feed_forward(sizes: Sizes) -> float:
    """The cost of passing every pair of tokens through the feed-forward of every layer."""
    return 2.0 * sizes.layers * sizes.tokens**2 * sizes.d * sizes.d_ff


def _through_layers_by_token(sizes: Sizes) -> float:
    """The cost of one forward pass per input token."""
    return sizes.tokens * sizes.one_pass


# --- the rows that do not depend on the architecture ------------------------------------------------

_SUM_OF_PARTS = "The largest |Σ parts + rest − y| / |y|, where y is what the model computed."

ATTENTION = Kind(
    name="attention",
    label="Attention",
    group="weights",
    hint="The attention weights: how much of each source's value each head takes.",
    reading="Each row sums to 1; a large weight on a short value vector carries little.",
    reference="Vaswani et al. 2017, section 3.2.1",
    compute=maps.attention,
    certificate="The largest difference between the sum of a row and 1.",
    axes=PER_HEAD,
    rolls_out=True,
)
NORM = Kind(
    name="norm",
    label="Norm",
    group="norms",
    hint="The length of what each head takes from each source: weight times value vector.",
    reading="Compare it with the attention weights: a token with a large weight may add little.",
    reference="Kobayashi et al. 2020",
    compute=maps.norm,
    certificate=_SUM_OF_PARTS,
    axes=PER_HEAD,
    options=("value_bias",),
)
CONTRIBUTION = Kind(
    name="contribution",
    label="Contribution",
    group="norms",
    hint="How much of a token's vector came from each input token, through all layers so far.",
    reading="Lengths of parts that sum to the vector; attention, norms and activations are frozen.",
    reference="Modarressi et al. 2023 (DecompX)",
    compute=maps.contribution,
    certificate=_SUM_OF_PARTS,
    options=("baseline",),
    whole=True,
    cost=_through_layers_by_token,
)
EFFECTIVE = Kind(
    name="effective",
    label="Effective",
    group="identifiability",
    hint="The part of the attention that the head's output depends on; it may be negative.",
    reading="Rows need not sum to 1: the values are not probabilities.",
    reference="Brunner et al. 2020, section 4",
    compute=effective.effective_map,
    certificate="The largest |A⊥T − AT| / |AT|, T = V W_O of a head.",
    axes=PER_HEAD,
    options=("value_bias",),
    signed=True,
)
NULL = Kind(
    name="null",
    label="Null",
    group="identifiability",
    hint="Attention minus effective attention: the part that has no effect on the head's output.",
    reading="Zero everywhere means that the head's output determines its attention.",
    reference="Brunner et al. 2020, section 4",
    compute=effective.null_map,
    certificate="The largest |A⊥T − AT| / |AT|, T = V W_O of a head.",
    axes=PER_HEAD,
    options=("value_bias",),
    signed=True,
)
ATTRIBUTION = Kind(
    name="attribution",
    label="Attribution",
    group="gradients",
    hint="How much a small change of each input token would move a token's vector, as shares.",
    reading="Each row sums to 1; nothing is frozen: softmax, norms and activations move too.",
    reference="Brunner et al. 2020, section 5",
    compute=attribution.attribution_map,
    certificate="The largest |J u − J' u| / |J' u| for random u, J' the derivative of the model.",
    whole=True,
    cost=lambda sizes: 2 * sizes.d * _through_layers_by_token(sizes),
    estimate=Estimate(
        compute=partial(attribution.attribution_map, probes=PROBES),
        cost=lambda sizes: 2 * PROBES * _through_layers_by_token(sizes),
        note=f"estimated from {PROBES} probes per token",
    ),
)
VALUE_ZEROING = Kind(
    name="value_zeroing",
    label="Value zeroing",
    group="interventions",
    hint="How far a token's vector turns when the values of one source are set to zero in the layer.",
    reading="1 minus a cosine: 0 is no effect. An intervention, to compare with norm-based maps.",
    reference="Mohebbi et al. 2023",
    compute=maps.value_zeroing,
    certificate="The largest |y − y'| / |y'|, y' the model's output with one value set to zero.",
    rolls_out=True,
    cost=lambda sizes: 2 * _through_feed_forward(sizes),
)


# --- the rows of the scopes, which follow from the layer ----------------------------------------------


@dataclass(frozen=True)
class _Place:
    """A place in the computation of a layer, with its map.

    Attributes
    ----------
    suffix
        The name of the scope; after the feed-forward, the suffix to the name before it.
    hint
        One sentence on what the map shows there.
    step
        The label of the last step before the place.
    does
        The component that performs that step.
    """

    suffix: str
    hint: str
    step: str = ""
    does: str = ""


_HEADS = _Place(
    "ATTN", "The length of what each source sends through all heads of the layer together."
)
_HEADS_NORMED = _Place("ATTNLN", "What each source sends, after the norm of what attention writes.")
_HEADS_RESIDUAL = _Place(
    "ATTNRES", "What each source sends, with the residual connection of each token to itself."
)
_BLOCK = _Place(
    "ATB",
    "The whole attention block: heads, residual connection, and the norm where one follows.",
)
_BLOCK_NORMED = _Place("ATBLN", "The attention block, after the norm in front of the feed-forward.")
_BESIDE = _Place("FF", "The whole layer: the parallel feed-forward reads each token separately.")
_FED = _Place(
    "FF", "After the feed-forward alone, before its residual connection.", "FF", "the feed-forward"
)
_FED_NORMED = _Place(
    "FFLN", "After the feed-forward and the norm of what it writes.", "LN", "the norm that follows"
)
_FED_RESIDUAL = _Place(
    "FFRES",
    "After the feed-forward and its residual connection.",
    "RES",
    "the residual connection around the feed-forward",
)
_FED_NORMED_RESIDUAL = _Place(
    "FFLNRES",
    "After the feed-forward, the norm of what it writes and the residual connection.",
    "RES",
    "the residual connection around the feed-forward",
)
_LEFT = _Place(
    "FFRESLN",
    "The whole layer: after the feed-forward, its residual connection and its norm.",
    "LN",
    "the norm that follows",
)
_LEFT_NORMED_TWICE = _Place(
    "FFLNRESLN",
    "The whole layer: after the feed-forward, its two norms and the residual connection.",
    "LN",
    "the norm that follows",
)


def _places(block: Block) -> tuple[list[_Place], list[_Place]]:
    """The places up to the feed-forward and those after it, in the order of the computation."""
    attention, feed_forward = block.attention, block.feed_forward
    before = [_HEADS]
    if attention.after is not None:
        before.append(_HEADS_NORMED)
    if isinstance(block.steps[1], Norm):
        before.append(_HEADS_RESIDUAL)
    before.append(_BLOCK)
    if block.parallel:
        return before, [_BESIDE]
    if feed_forward.before is not None:
        before.append(_BLOCK_NORMED)
    normed = feed_forward.after is not None
    after = [_FED, _FED_NORMED, _FED_NORMED_RESIDUAL] if normed else [_FED, _FED_RESIDUAL]
    if not isinstance(block.steps[-1], FeedForward):
        after.append(_LEFT_NORMED_TWICE if normed else _LEFT)
    return before, after


def scopes_of(block: Block) -> list[Kind]:
    """The norm-based kinds of a layer, in the order of its computation.

    The names follow Kobayashi et al. (2024): ATTN, then RES, LN and FF in the order of the layer. ATB
    is attention with its residual connection, and with the norm if one follows (BERT: ATTN, ATTNRES,
    ATB, ATBFF, ATBFFRES, ATBFFRESLN; GPT-2: ATTN, ATB, ATBLN, ATBLNFF, ATBLNFFRES). In a parallel
    block the feed-forward reads each token separately, and ATBFF is the whole layer.
    """
    before, after = _places(block)
    prefix = before[-1].suffix
    names = [place.suffix for place in before] + [prefix + place.suffix for place in after]
    rows = []
    for position, (name, place) in enumerate(zip(names, before + after, strict=True)):
        fed = position >= len(before)
        rows.append(
            Kind(
                name=name,
                label=name,
                group="norms",
                hint=place.hint,
                reading="Lengths of parts; parts and token-less rest sum to the vector at that place.",
                reference="Kobayashi et al. 2024" if fed else "Kobayashi et al. 2021",
                compute=partial(maps.scope, name=name, feed_forward=fed),
                certificate=_SUM_OF_PARTS,
                options=("value_bias", "baseline", "measure") if fed else ("value_bias", "measure"),
                rolls_out=True,
                cost=_through_feed_forward if fed and not block.parallel else None,
                position=position,
                feed_forward=fed,
            )
        )
    return rows


def changes_of(block: Block) -> list[Kind]:
    """The kinds of change: the effect of the feed-forward and of each later step on a layer's map.

    The steps are the feed-forward (Kobayashi et al. 2024), its residual connection and the norms
    after it. A change has the name of the scope after the step, such as change_FFRES. A parallel block
    has none, because its feed-forward only changes what a token sends to itself.
    """
    if block.parallel:
        return []
    _, places = _places(block)
    pairs = [pair for pair in pairwise(scopes_of(block)) if pair[1].feed_forward]
    return [
        Kind(
            name=f"change_{place.suffix}",
            label=f"Δ{place.step}",
            group="changes",
            hint=f"What {place.does} changes in the map: {after.name} minus {before.name}.",
            reading="Positive: the source contributes more after the step; negative: less.",
            reference="Kobayashi et al. 2024",
            compute=partial(
                maps.change,
                before=before.name,
                after=after.name,
                read_before=before.feed_forward,
            ),
            certificate=_SUM_OF_PARTS,
            options=("value_bias", "baseline"),
            signed=True,
            cost=_through_feed_forward,
            feed_forward=True,
        )
        for place, (before, after) in zip(places, pairs, strict=True)
    ]


def kinds_of(anatomy: Anatomy) -> dict[str, Kind]:
    """The kinds of map of a model, by name, in the order in which views list them."""
    block = anatomy.blocks[0]
    differentiable = all(block.attention.scores is not None for block in anatomy.blocks)
    kinds = [
        ATTENTION,
        NORM,
        *scopes_of(block),
        CONTRIBUTION,
        *changes_of(block),
        EFFECTIVE,
        NULL,
        *([ATTRIBUTION] if differentiable else []),
        VALUE_ZEROING,
    ]
    return {kind.name: kind for kind in kinds}


# --- maps by the name of their kind -------------------------------------------------------------------


def kinds(analyses: Analyses) -> dict[str, Kind]:
    """The kinds of map of a run, by name."""
    return analyses.once(("kinds",), lambda: kinds_of(analyses.anatomy))


def token_map(analyses: Analyses, name: str, options: Options | None = None) -> TokenMap:
    """The map of a kind, computed once and kept.

    Raises
    ------
    ProsectError
        If there is no such kind, or it does not take one of the options that were changed.
    ReconstructionError
        If the parts do not add up to what the model computed.
    """
    known = kinds(analyses)
    check_known(name, list(known), "kind")
    kind, chosen = known[name], options or Options()
    for option in chosen.changed():
        if option not in kind.options:
            takers = _names([one for one in known.values() if option in one.options])
            raise ProsectError(
                f"{option} has no effect on the kind {name!r}: leave it out, or choose one of {takers}."
            )

    def compute() -> TokenMap:
        made = kind.compute(analyses, chosen)
        error = certified(made.error, f"the map {name}", analyses.dtype)
        return TokenMap(made.values, name, kind.axes, error, made.rest, made.own, made.others)

    return analyses.once(("map", name, chosen), compute)


def computed(analyses: Analyses, name: str) -> bool:
    """Whether a map, or everything that it follows from, is computed with the default options."""
    kind = kinds(analyses).get(name)
    if kind is not None and kind.feed_forward and maps.scopes_are_known(analyses):
        return True
    return analyses.known(("map", name, Options())) is not None


def _names(kinds: Sequence[Kind]) -> str:
    return ", ".join(kind.name for kind in kinds)

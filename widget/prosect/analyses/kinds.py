"""The kinds of token-to-token map: one table of what each is, how to read it and how it is computed.

A new kind is one row here and one function that computes it. Python, the command line and the views
all say what the table says.
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
"""The multiplications that something takes, roughly, from the sizes of the run."""

PER_HEAD = ("layer", "head", "target", "source")
PER_LAYER = ("layer", "target", "source")
PROBES = 16
"""How many random probes a token an attribution is estimated from, where it stands for the exact one."""


@dataclass(frozen=True)
class Estimate:
    """A cheaper stand-in for a map, for the views.

    Attributes
    ----------
    compute
        Its computation.
    cost
        The multiplications it takes.
    note
        What is added to the kind's hint.
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
        As in ``trace.map(name)``.
    label
        Its short name.
    group
        "weights", "norms", "changes", "interventions", "identifiability" or "gradients".
    hint
        One sentence on what it shows.
    reading
        How to read it.
    source
        The paper that defines it, and where in the paper.
    compute
        Its computation.
    certificate
        What the map's ``error`` measures.
    axes
        The names of its axes.
    options
        Those of the options of a map, "value_bias", "baseline" and "measure", that it takes.
    signed
        Whether values may be negative.
    whole
        Whether it is of all layers so far rather than of one.
    rolls_out
        Whether its maps of single layers, multiplied, are one of all of them.
    cost
        The multiplications it takes; None where it is read off the run and takes next to none.
    estimate
        What stands for it where the exact map takes too long.
    position
        For scopes: its place in the layer's computation, from 0.
    feed_forward
        Whether it includes what the feed-forward does.
    """

    name: str
    label: str
    group: Group
    hint: str
    reading: str
    source: str
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
        """Whether there is a map for every head or one for the layer."""
        return "head" in self.axes

    def __str__(self) -> str:
        """What it is, how to read it and where it comes from."""
        return f"{self.label}: {self.hint} {self.reading} ({self.source})"


# --- the costs ------------------------------------------------------------------------------------


def _through_feed_forward(sizes: Sizes) -> float:
    """Every pair of tokens through the feed-forward of every layer."""
    return 2.0 * sizes.layers * sizes.tokens**2 * sizes.d * sizes.d_ff


def _through_layers_by_token(sizes: Sizes) -> float:
    """One pass for each input token."""
    return sizes.tokens * sizes.one_pass


# --- the rows that do not depend on the architecture ------------------------------------------------

_SUM_OF_PARTS = "The largest |Σ parts + rest − y| / |y|, y what the model computed there."

ATTENTION = Kind(
    name="attention",
    label="Attention",
    group="weights",
    hint="The attention weights: how much of each source's value each head takes.",
    reading="Each row sums to 1; a large weight on a short value vector carries little.",
    source="Vaswani et al. 2017, section 3.2.1",
    compute=maps.attention,
    certificate="How far the sum of a row is from 1, at most.",
    axes=PER_HEAD,
    rolls_out=True,
)
NORM = Kind(
    name="norm",
    label="Norm",
    group="norms",
    hint="The length of what each head takes from each source: weight times value vector.",
    reading="Compare it with the attention weights: a token with a large weight may add little.",
    source="Kobayashi et al. 2020, section 3",
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
    reading="Lengths of parts that sum to the vector; what is frozen on the way is as in the run.",
    source="Modarressi et al. 2023, section 3 (DecompX)",
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
    reading="Rows need not sum to 1: these are no probabilities.",
    source="Brunner et al. 2020, section 4",
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
    hint="Attention minus effective attention: what could be otherwise without any effect.",
    reading="Zero everywhere means that the head's output determines its attention.",
    source="Brunner et al. 2020, section 4",
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
    source="Brunner et al. 2020, section 5",
    compute=attribution.attribution_map,
    certificate="The largest |J u − J' u| / |J' u| along random u, J' the model's own derivative.",
    whole=True,
    cost=lambda sizes: 2 * sizes.d * _through_layers_by_token(sizes),
    estimate=Estimate(
        compute=partial(attribution.attribution_map, probes=PROBES),
        cost=lambda sizes: 2 * PROBES * _through_layers_by_token(sizes),
        note=f"estimated from {PROBES} probes a token",
    ),
)
VALUE_ZEROING = Kind(
    name="value_zeroing",
    label="Value zeroing",
    group="interventions",
    hint="How far a token's vector turns when the values of one source are set to zero here.",
    reading="1 minus a cosine: 0 is no effect. An intervention to hold the norm-based maps against.",
    source="Mohebbi et al. 2023, section 3",
    compute=maps.value_zeroing,
    certificate="The largest |y − y'| / |y'|, y' of the model with one value set to zero.",
    rolls_out=True,
    cost=lambda sizes: 2 * _through_feed_forward(sizes),
)


# --- the rows of the scopes, which follow from the layer ----------------------------------------------


@dataclass(frozen=True)
class _Place:
    """A place in a layer where a map is taken.

    Attributes
    ----------
    suffix
        What it adds to the name of the scope in front of the feed-forward, or its whole name.
    hint
        One sentence on what the map shows there.
    step
        The label of the step that leads there.
    does
        What does that step.
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
    "ATTNRES", "What each source sends, with the residual connection: a token keeps itself."
)
_BLOCK = _Place(
    "ATB",
    "The whole attention block: heads, residual connection, and the norm where one follows.",
)
_BLOCK_NORMED = _Place("ATBLN", "The attention block, after the norm in front of the feed-forward.")
_BESIDE = _Place("FF", "The whole layer: the feed-forward beside attention reads each token alone.")
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

    They follow Kobayashi et al. (2024): ATTN, then RES, LN and FF as they come; ATB stands for
    attention with its residual connection, and with the norm where one follows (BERT: ATTN, ATTNRES,
    ATB, ATBFF, ATBFFRES, ATBFFRESLN; GPT-2: ATTN, ATB, ATBLN, ATBLNFF, ATBLNFFRES). In a parallel
    block the feed-forward reads tokens alone, and ATBFF is the whole layer.
    """
    before, after = _places(block)
    prefix = before[-1].suffix
    names = [place.suffix for place in before] + [prefix + place.suffix for place in after]
    found = []
    for position, (name, place) in enumerate(zip(names, before + after, strict=True)):
        fed = position >= len(before)
        found.append(
            Kind(
                name=name,
                label=name,
                group="norms",
                hint=place.hint,
                reading="Lengths of parts that sum, with a rest of no token, to what is computed there.",
                source="Kobayashi et al. 2024, section 3"
                if fed
                else "Kobayashi et al. 2021, section 3",
                compute=partial(maps.scope, name=name, feed_forward=fed),
                certificate=_SUM_OF_PARTS,
                options=("value_bias", "baseline", "measure") if fed else ("value_bias", "measure"),
                rolls_out=True,
                cost=_through_feed_forward if fed and not block.parallel else None,
                position=position,
                feed_forward=fed,
            )
        )
    return found


def changes_of(block: Block) -> list[Kind]:
    """The kinds of what the steps from the feed-forward on change in the map of a layer.

    What the feed-forward does (Kobayashi et al. 2024), and what its residual connection and the norm
    after it do to that. They are named for the scope after the step, as in change_FFRES. None in a
    parallel block, where the feed-forward only changes what a token sends to itself.
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
            reading="Positive where a source counts for more after the step, negative where for less.",
            source="Kobayashi et al. 2024",
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
    """The kinds of map that a model has, by name, in the order of a switch."""
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
    """The kinds of map that a run has, by name."""
    return analyses.once(("kinds",), lambda: kinds_of(analyses.anatomy))


def token_map(analyses: Analyses, name: str, options: Options | None = None) -> TokenMap:
    """The map of a kind, computed once and kept.

    Raises
    ------
    ProsectError
        If there is no such kind, or it does not take an option that was chosen.
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
        found = kind.compute(analyses, chosen)
        error = certified(found.error, f"the map {name}", analyses.dtype)
        return TokenMap(found.values, name, kind.axes, error, found.rest, found.own, found.others)

    return analyses.once(("map", name, chosen), compute)


def computed(analyses: Analyses, name: str) -> bool:
    """Whether the map of a kind is there already, or all that it is read off, with default options."""
    kind = kinds(analyses).get(name)
    if kind is not None and kind.feed_forward and maps.scopes_are_known(analyses):
        return True
    return analyses.known(("map", name, Options())) is not None


def _names(found: Sequence[Kind]) -> str:
    return ", ".join(kind.name for kind in found)

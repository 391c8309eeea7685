"""The kinds of token-to-token map, as readers meet them: names, groups, one sentence each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prosect.anatomy.vocabulary import Anatomy, Block, FeedForward, Norm

Group = Literal["weights", "norms", "changes", "interventions", "identifiability", "gradients"]


@dataclass(frozen=True)
class Kind:
    """A kind of map.

    Attributes
    ----------
    label
        Its short name.
    group
        "weights", "norms", "changes", "interventions", "identifiability" or "gradients".
    hint
        One sentence on what it shows.
    per_head
        Whether there is a map for every head or one for the layer.
    signed
        Whether values may be negative.
    costly
        Whether it takes many passes through the feed-forwards rather than none.
    whole
        Whether it is of all layers so far rather than of one.
    options
        Those of the options of a map, "value_bias" and "baseline", that it takes.
    """

    name: str
    label: str
    group: Group
    hint: str
    per_head: bool = False
    signed: bool = False
    costly: bool = False
    whole: bool = False
    options: tuple[str, ...] = ()

    @property
    def rolls_out(self) -> bool:
        """Whether its maps of single layers, multiplied, are one of all of them."""
        return not (self.signed or self.whole or (self.per_head and self.group != "weights"))


ATTENTION = Kind(
    name="attention",
    label="Attention",
    group="weights",
    hint="The attention weights: how much of each source's value each head takes.",
    per_head=True,
)
NORM = Kind(
    name="norm",
    label="Norm",
    group="norms",
    hint="The length of what each head takes from each source: weight times value vector.",
    per_head=True,
    options=("value_bias",),
)
EFFECTIVE = Kind(
    name="effective",
    label="Effective",
    group="identifiability",
    hint="The part of the attention that the head's output depends on; it may be negative.",
    per_head=True,
    signed=True,
    options=("value_bias",),
)
NULL = Kind(
    name="null",
    label="Null",
    group="identifiability",
    hint="Attention minus effective attention: what could be otherwise without any effect.",
    per_head=True,
    signed=True,
    options=("value_bias",),
)
ATTRIBUTION = Kind(
    name="attribution",
    label="Attribution",
    group="gradients",
    hint="How much a small change of each input token would move a token's vector, as shares.",
    costly=True,
    whole=True,
)
CONTRIBUTION = Kind(
    name="contribution",
    label="Contribution",
    group="norms",
    hint="How much of a token's vector came from each input token, through all layers so far.",
    costly=True,
    whole=True,
    options=("baseline",),
)
VALUE_ZEROING = Kind(
    name="value_zeroing",
    label="Value zeroing",
    group="interventions",
    hint="How far a token's vector turns when the values of one source are set to zero here.",
    costly=True,
)

_HINTS = {
    "ATTN": "The length of what each source sends through all heads of the layer together.",
    "ATTNLN": "What each source sends, after the norm of what attention writes.",
    "ATTNRES": "What each source sends, with the residual connection: a token keeps itself.",
    "ATB": "The whole attention block: heads, residual connection, and the norm where one follows.",
    "ATBLN": "The attention block, after the norm in front of the feed-forward.",
    "FF": "After the feed-forward alone, before its residual connection.",
    "FFLN": "After the feed-forward and the norm of what it writes.",
    "FFRES": "After the feed-forward and its residual connection.",
    "FFLNRES": "After the feed-forward, the norm of what it writes and the residual connection.",
    "FFRESLN": "The whole layer: after the feed-forward, its residual connection and its norm.",
}
_PARALLEL_HINT = "The whole layer: the feed-forward beside attention reads each token alone."


def scope_names(block: Block) -> tuple[str, ...]:
    """The names of the norm-based maps of a layer, in the order of its computation.

    They follow Kobayashi et al. (2024): ATTN, then RES, LN and FF as they come; ATB stands for
    attention with its residual connection, and with the norm where one follows (BERT: ATTN, ATTNRES,
    ATB, ATBFF, ATBFFRES, ATBFFRESLN; GPT-2: ATTN, ATB, ATBLN, ATBLNFF, ATBLNFFRES). In a parallel
    block the feed-forward reads tokens alone, and ATBFF is the whole layer.
    """
    attention, feed_forward = block.attention, block.feed_forward
    names = ["ATTN"]
    if attention.after is not None:
        names.append("ATTNLN")
    if isinstance(block.steps[1], Norm):
        names.append("ATTNRES")
    names.append("ATB")
    if block.parallel:
        return (*names, "ATBFF")
    if feed_forward.before is not None:
        names.append("ATBLN")
    names.append(names[-1] + "FF")
    if feed_forward.after is not None:
        names.append(names[-1] + "LN")
    names.append(names[-1] + "RES")
    last = block.steps[-1]
    if not isinstance(last, FeedForward):
        names.append(names[-1] + "LN")
    return tuple(names)


def changes_of(block: Block) -> dict[str, tuple[str, str]]:
    """The changes that the steps after attention make to the map: by name, before and after.

    What the feed-forward does (Kobayashi et al. 2024), and what its residual connection and the norm
    after it do to that. They are named for the scope after the step, as in change_FFRES.
    """
    names = scope_names(block)
    first = next((i for i, name in enumerate(names) if "FF" in name), len(names))
    steps = zip(names[first - 1 :], names[first:], strict=False)
    return {f"change_{after[after.index('FF') :]}": (before, after) for before, after in steps}


def _change(name: str, before: str, after: str) -> Kind:
    step = after.removeprefix(before)
    what = {
        "FF": "the feed-forward",
        "LN": "the norm that follows",
        "RES": "the residual connection around the feed-forward",
    }[step]
    return Kind(
        name=name,
        label=f"Δ{step}",
        group="changes",
        hint=f"What {what} changes in the map: {after} minus {before}.",
        signed=True,
        costly=True,
        options=("value_bias", "baseline"),
    )


def kinds_of(anatomy: Anatomy) -> dict[str, Kind]:
    """The kinds of map that a model has, by name, in the order of a switch."""
    block = anatomy.blocks[0]
    scopes = [
        Kind(
            name=name,
            label=name,
            group="norms",
            hint=_hint(name, block.parallel),
            costly="FF" in name and not block.parallel,
            options=("value_bias", "baseline") if "FF" in name else ("value_bias",),
        )
        for name in scope_names(block)
    ]
    changes = []
    if not block.parallel:  # there the feed-forward only changes what a token sends to itself
        changes = [_change(name, *pair) for name, pair in changes_of(block).items()]
    kinds = [ATTENTION, NORM, *scopes, CONTRIBUTION, *changes, EFFECTIVE, NULL]
    if all(block.attention.scores is not None for block in anatomy.blocks):
        kinds.append(ATTRIBUTION)
    kinds.append(VALUE_ZEROING)
    return {kind.name: kind for kind in kinds}


def _hint(name: str, parallel: bool) -> str:
    if parallel and name == "ATBFF":
        return _PARALLEL_HINT
    return _HINTS[name[name.index("FF") :] if "FF" in name else name]

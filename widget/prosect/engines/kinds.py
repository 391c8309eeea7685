"""Token-to-token maps: how much each source passes to each target. A kind is one row of KINDS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Kind:
    """A kind of map, as readers meet it.

    Attributes
    ----------
    label
        Its short name.
    group
        "weights", "norms", "identifiability" or "gradients".
    hint
        One sentence on what it shows.
    per_head
        Whether there is a map for every head or one for the layer.
    signed
        Whether values may be negative.
    """

    name: str
    label: str
    group: Literal["weights", "norms", "identifiability", "gradients"]
    hint: str
    per_head: bool
    signed: bool


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            name="attention",
            label="Attention",
            group="weights",
            hint="The attention weights: how much of each source's value each head takes.",
            per_head=True,
            signed=False,
        ),
    )
}

"""Link separate views, so that they show the same place."""

from __future__ import annotations

from typing import Any

import traitlets

PLACES = ("layer", "head", "target", "source", "hovered", "kind")


def link(*views: traitlets.HasTraits) -> list[traitlets.link]:
    """Keep layer, head, target, source, hovered token and kind the same in all views, both ways.

    Views and figures are linked by the traits that they share; they all take the values of the first.
    A token under the pointer in one view is highlighted in all views. For this, each move of the
    pointer to another token sends a message to the kernel.

    Parameters
    ----------
    *views
        Two or more views of texts of the same length, figures among them.

    Returns
    -------
    list of traitlets.link
        Call ``unlink()`` on each to remove the links.

    Raises
    ------
    ValueError
        If there are fewer than two, one is no view, two share no trait, or they differ in size or in
        their kinds of map. Nothing is linked then.
    """
    if len(views) < 2:
        raise ValueError(f"views must be at least two views, got {len(views)}.")
    for view in views:
        if not isinstance(view, traitlets.HasTraits):
            raise ValueError(f"views must be views or figures, got {view!r}.")
    first, *others = views
    pairs = []
    for other in others:
        shared = [name for name in PLACES if first.has_trait(name) and other.has_trait(name)]
        if not shared:
            raise ValueError(f"{first!r} and {other!r} have no trait in common: link other views.")
        _check_alike(first, other)
        pairs += [((first, name), (other, name)) for name in shared]
    return [traitlets.link(*pair) for pair in pairs]


def _check_alike(first: Any, other: Any) -> None:
    for name in ("layers", "heads", "tokens"):
        sizes = [getattr(view, "_about", {}).get(name) for view in (first, other)]
        if None not in sizes and sizes[0] != sizes[1]:
            raise ValueError(
                f"The views have {sizes[0]} and {sizes[1]} {name}: link views of the same size."
            )
    kinds = [{kind["name"] for kind in getattr(view, "_kinds", [])} for view in (first, other)]
    if all(kinds) and kinds[0] != kinds[1]:
        name = min(kinds[0] ^ kinds[1])
        raise ValueError(
            f"Only one of the views has the kind of map {name!r}: link views of models with the "
            "same kinds."
        )

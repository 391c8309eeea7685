"""The non-empty subsets of the terms, in the paper's order: i, h, f, c, i+h, …, all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.anatomy.vocabulary import Term
from prosect.errors import ProsectError

LETTERS: dict[Term, str] = {
    "input": "i",
    "attention": "h",
    "feed_forward": "f",
    "bias": "c",
    "source": "s",
}
"""The paper's letter of each term; s, a decoder's cross-attention, is an addition."""

Subset = tuple[Term, ...]


def subsets_of(names: Sequence[Term]) -> list[Subset]:
    """All non-empty subsets of the terms by increasing size, ending with all terms."""
    return [
        subset for size in range(1, len(names) + 1) for subset in combinations(tuple(names), size)
    ]


def label_of(subset: Subset, names: Sequence[Term]) -> str:
    """The paper's label of a subset: "h", "i+h", "all"."""
    return "all" if set(subset) == set(names) else "+".join(LETTERS[term] for term in subset)


def chosen_subsets(labels: Iterable[str] | None, names: Sequence[Term]) -> list[Subset]:
    """Return the subsets with these labels, without repetition, in the paper's order; None for all.

    The letters of a label may be in any order ("f+i"); "all" is the set of all terms.

    Raises
    ------
    ProsectError
        If a label contains no letter of a term, or there is no label.
    """
    every = subsets_of(names)
    if labels is None:
        return every
    if isinstance(labels, str):
        raise ProsectError(f"subsets must be a list of labels, such as [{labels!r}], got a string.")
    terms: dict[str, Term] = {LETTERS[name]: name for name in names}
    selection: set[frozenset[Term]] = set()
    for label in labels:
        letters = list(terms) if label == "all" else str(label).split("+")
        if any(letter not in terms for letter in letters):
            raise ProsectError(
                f"A subset must be 'all' or some of {', '.join(terms)} joined by +, got {label!r}."
            )
        selection.add(frozenset[Term](terms[letter] for letter in letters))
    if not selection:
        raise ProsectError("subsets must contain at least one label, or be None for all subsets.")
    return [subset for subset in every if frozenset(subset) in selection]


def indicator(subsets: Sequence[Subset], names: Sequence[Term]) -> Float[Tensor, "subset term"]:
    """1 where a term is in a subset: its product with the terms is the sum of each subset."""
    return torch.tensor([[float(name in subset) for name in names] for subset in subsets])

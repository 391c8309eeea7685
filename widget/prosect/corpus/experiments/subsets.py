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
"""What the paper calls each term; s, what a decoder read from its source, is ours."""

Subset = tuple[Term, ...]


def subsets_of(names: Sequence[Term]) -> list[Subset]:
    """All non-empty subsets of the terms: singles first, then pairs, and so on; the sum last."""
    return [
        subset for size in range(1, len(names) + 1) for subset in combinations(tuple(names), size)
    ]


def label_of(subset: Subset, names: Sequence[Term]) -> str:
    """How the paper writes a subset: "h", "i+h", "all"."""
    return "all" if set(subset) == set(names) else "+".join(LETTERS[term] for term in subset)


def chosen_subsets(wanted: Iterable[str] | None, names: Sequence[Term]) -> list[Subset]:
    """The subsets with these labels, each once, in the paper's order; all of them for None.

    Letters may come in any order ("f+i"); "all" is every term.

    Raises
    ------
    ProsectError
        If a label names no term of the model, or there is none.
    """
    every = subsets_of(names)
    if wanted is None:
        return every
    if isinstance(wanted, str):
        raise ProsectError(f"subsets is a list of labels, such as [{wanted!r}].")
    terms: dict[str, Term] = {LETTERS[name]: name for name in names}
    found: set[frozenset[Term]] = set()
    for label in wanted:
        letters = list(terms) if label == "all" else str(label).split("+")
        for letter in letters:
            if letter not in terms:
                raise ProsectError(
                    f"There is no subset {label!r}: join some of {', '.join(terms)} by +, "
                    "or say 'all'."
                )
        found.add(frozenset[Term](terms[letter] for letter in letters))
    if not found:
        raise ProsectError("There are no subsets: name at least one, or leave subsets out.")
    return [subset for subset in every if frozenset(subset) in found]


def indicator(subsets: Sequence[Subset], names: Sequence[Term]) -> Float[Tensor, "subset term"]:
    """1 where a term is in a subset: times the terms, it gives the sums."""
    return torch.tensor([[float(name in subset) for name in names] for subset in subsets])

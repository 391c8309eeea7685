"""The terms of words: what the experiments on annotated sentences learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar, cast

import numpy as np
import torch
from typing_extensions import Unpack

from prosect.anatomy.vocabulary import Term
from prosect.corpus.data.words import Place, Wanted
from prosect.corpus.running.runner import Options, Outcome, concatenate, run
from prosect.corpus.running.workers import Models, models_of
from prosect.corpus.statistics.moments import Arrays
from prosect.errors import ProsectError
from prosect.lens import Lens


@dataclass(frozen=True)
class WordTerms:
    """The terms of words at one hidden state: of each word, the sum over its tokens.

    A token belongs to every word that it shares a character with. A word that no token covers
    leaves nothing.

    Attributes
    ----------
    state
        Which hidden state; negative counts from the last.
    """

    state: int

    name: ClassVar[str] = "words"

    def measure(self, lens: Lens, items: Sequence[Wanted]) -> Arrays:
        """The terms [word, term, d] of the words of a batch, their places [word, 2] and names."""
        found, places, names = [], [], ()
        texts = [item.text for item in items]
        for item, trace in zip(items, lens.traces(texts, batch_size=len(items)), strict=True):
            split = trace.terms()
            terms, names = split.values, split.names
            if not -terms.shape[1] <= self.state < terms.shape[1]:
                raise ProsectError(
                    f"There is no hidden state {self.state}: {lens.name} has them from 0, which "
                    f"enters the first layer, to {terms.shape[1] - 1}."
                )
            spans = [token.span or (0, 0) for token in trace.tokens]
            owned = torch.tensor(
                [[a < end and start < b for a, b in spans] for start, end in item.spans]
            )
            sums = torch.einsum("wn,tnd->wtd", owned.to(terms), terms[:, self.state])
            covered = owned.any(1)
            found.append(sums[covered.to(sums.device)].cpu().numpy())
            places += [
                (item.number, w) for w, there in zip(item.words, covered, strict=True) if there
            ]
        return {
            "terms": np.concatenate(found),
            "places": np.array(places, dtype=int).reshape(-1, 2),
            "names": np.array(names),
        }

    def merge(self, first: Arrays, second: Arrays) -> Arrays:
        """Those of two stretches of sentences."""
        words = ("terms", "places")
        both = concatenate(*({name: part[name] for name in words} for part in (first, second)))
        return {**both, "names": first["names"]}


@dataclass(frozen=True, eq=False)
class Words:
    """Words that every one of the models has read, and their terms.

    Attributes
    ----------
    places
        Of each word, in order.
    terms
        By model, [term, word, d].
    names
        By model, what the terms are.
    outcomes
        By model, of the run.
    sentences
        The numbers of the sentences of which every model has read a word.
    missing
        How many of the wanted words of these sentences some model has no token for.
    """

    places: list[Place]
    terms: dict[str, torch.Tensor]
    names: dict[str, tuple[Term, ...]]
    outcomes: dict[str, Outcome]
    sentences: list[int]
    missing: int


def words_of(
    models: Models, items: Sequence[Wanted], state: int, **options: Unpack[Options]
) -> Words:
    """The terms of the wanted words in each of the models.

    Raises
    ------
    ProsectError
        If there is no such hidden state, or no text fits a model.
    """
    named = models_of(models)
    outcomes = {
        name: run(WordTerms(state), model, items, attrgetter("text"), **options)
        for name, model in named.items()
    }
    found = {
        name: [cast(Place, tuple(place)) for place in outcome.arrays["places"].tolist()]
        for name, outcome in outcomes.items()
    }
    common = set.intersection(*map(set, found.values()))
    read = set.intersection(*({n for n, _ in places} for places in found.values()))
    terms = {}
    for name, places in found.items():
        kept = [i for i, place in enumerate(places) if place in common]
        values = torch.from_numpy(outcomes[name].arrays["terms"])
        terms[name] = values[kept].transpose(0, 1).contiguous()
    wanted = [(item.number, word) for item in items for word in item.words]
    return Words(
        places=[place for place in wanted if place in common],
        terms=terms,
        names={name: tuple(outcome.arrays["names"].tolist()) for name, outcome in outcomes.items()},
        outcomes=outcomes,
        sentences=sorted(read),
        missing=sum(n in read for n, _ in wanted) - len(common),
    )

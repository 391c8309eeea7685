"""The vectors of words, term by term, from which the experiments on annotated sentences learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar, cast

import numpy as np
import torch
from typing_extensions import Unpack

from prosect.anatomy.vocabulary import Term
from prosect.corpus.data.words import WordPosition, WordRequest
from prosect.corpus.running.runner import Options, Outcome, concatenate, run
from prosect.corpus.running.workers import Models, models_of
from prosect.corpus.statistics.moments import Arrays
from prosect.errors import ProsectError
from prosect.lens import Lens


@dataclass(frozen=True)
class WordTerms:
    """The terms of words at one hidden state: for each word, the sum over its tokens.

    A token belongs to every word with which it shares a character. A word without a token has no
    vector.

    Attributes
    ----------
    state
        The hidden state; negative values count from the last.
    """

    state: int

    name: ClassVar[str] = "words"

    def measure(self, lens: Lens, items: Sequence[WordRequest]) -> Arrays:
        """Compute the terms [word, term, d], positions [word, 2] and term names of a batch."""
        vectors, positions, names = [], [], ()
        texts = [item.text for item in items]
        for item, trace in zip(items, lens.traces(texts, batch_size=len(items)), strict=True):
            terms = trace.terms()
            values, names = terms.values, terms.names
            if not -values.shape[1] <= self.state < values.shape[1]:
                raise ProsectError(
                    f"state must be between {-values.shape[1]} and {values.shape[1] - 1}, "
                    f"as {lens.name} has {values.shape[1]} hidden states, got {self.state}."
                )
            spans = [token.span or (0, 0) for token in trace.tokens]
            belongs = torch.tensor(
                [[a < end and start < b for a, b in spans] for start, end in item.spans]
            )
            sums = torch.einsum("wn,tnd->wtd", belongs.to(values), values[:, self.state])
            has_token = belongs.any(1)
            vectors.append(sums[has_token.to(sums.device)].cpu().numpy())
            positions += [
                (item.number, w) for w, kept in zip(item.words, has_token, strict=True) if kept
            ]
        return {
            "terms": np.concatenate(vectors),
            "positions": np.array(positions, dtype=int).reshape(-1, 2),
            "names": np.array(names),
        }

    def merge(self, first: Arrays, second: Arrays) -> Arrays:
        """Concatenate the words of two ranges of sentences."""
        keys = ("terms", "positions")
        words = concatenate(*({key: part[key] for key in keys} for part in (first, second)))
        return {**words, "names": first["names"]}


@dataclass(frozen=True, eq=False)
class WordVectors:
    """The terms of the words that all models have read.

    Attributes
    ----------
    positions
        The position of each word, in order.
    terms
        By model, [term, word, d].
    names
        By model, the names of the terms.
    outcomes
        By model, the outcome of the run.
    sentences
        The indices of the sentences of which every model has read a word.
    missing
        The number of requested words in these sentences for which some model has no token.
    """

    positions: list[WordPosition]
    terms: dict[str, torch.Tensor]
    names: dict[str, tuple[Term, ...]]
    outcomes: dict[str, Outcome]
    sentences: list[int]
    missing: int


def word_vectors(
    models: Models, items: Sequence[WordRequest], state: int, **options: Unpack[Options]
) -> WordVectors:
    """Compute the terms of the requested words in each of the models.

    Raises
    ------
    ProsectError
        If there is no such hidden state, or no text fits a model.
    """
    outcomes = {
        name: run(WordTerms(state), model, items, attrgetter("text"), **options)
        for name, model in models_of(models).items()
    }
    positions = {
        name: [cast(WordPosition, tuple(row)) for row in outcome.arrays["positions"].tolist()]
        for name, outcome in outcomes.items()
    }
    common = set.intersection(*map(set, positions.values()))
    read = set.intersection(*({number for number, _ in own} for own in positions.values()))
    terms = {}
    for name, own in positions.items():
        rows = [i for i, position in enumerate(own) if position in common]
        values = torch.from_numpy(outcomes[name].arrays["terms"])
        terms[name] = values[rows].transpose(0, 1).contiguous()
    requested = [(item.number, word) for item in items for word in item.words]
    return WordVectors(
        positions=[position for position in requested if position in common],
        terms=terms,
        names={name: tuple(outcome.arrays["names"].tolist()) for name, outcome in outcomes.items()},
        outcomes=outcomes,
        sentences=sorted(read),
        missing=sum(number in read for number, _ in requested) - len(common),
    )

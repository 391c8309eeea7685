"""Hidden states of many texts, split into training, validation and test, and nearest candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from prosect.analyses import identity
from prosect.engines import nearest
from prosect.engines.nearest import Metric
from prosect.lens import Lens
from prosect.tokens import Token, vocabulary_labels

Candidates = Literal["sentence", "vocabulary"]
SPLIT = (0.70, 0.15, 0.15)
"""The shares of training, validation and test texts, as in the paper."""


@dataclass(frozen=True)
class HiddenStates:
    """The concatenated hidden states of several texts.

    Attributes
    ----------
    hidden
        [layer+1, token, d]; layer 0 holds the input embeddings.
    starts
        [token], the index of the first token of the token's text.
    ids
        [token], the vocabulary ids.
    labels
        The labels of the tokens.
    """

    hidden: Float[Tensor, "layer+1 token d"]
    starts: Int[Tensor, "token"]
    ids: Int[Tensor, "token"]
    labels: list[str]

    @classmethod
    def concatenate(cls, texts: Sequence[tuple[Tensor, list[Token]]]) -> HiddenStates:
        """Concatenate the hidden states and tokens of several texts."""
        hidden, starts, ids, labels, first = [], [], [], [], 0
        for states, tokens in texts:
            hidden.append(states)
            starts += [first] * len(tokens)
            ids += [token.id for token in tokens]
            labels += [token.label for token in tokens]
            first += len(tokens)
        return cls(torch.cat(hidden, dim=1), torch.tensor(starts), torch.tensor(ids), labels)

    def true_candidates(self, candidates: Candidates) -> Int[Tensor, "token"]:
        """The index of each token's own input embedding among the candidates."""
        return self.ids if candidates == "vocabulary" else torch.arange(len(self.ids))

    def nearest_candidates(
        self, lens: Lens, g: nn.Module, metric: Metric, candidates: Candidates
    ) -> Int[Tensor, "layer+1 token"]:
        """The index of the candidate nearest to g of each hidden vector."""
        with torch.no_grad():
            mapped = g(self.hidden)
        if candidates == "vocabulary":
            ids, *_ = identity.search(lens.anatomy, mapped, None, self.ids, 1, metric, stem=True)
            return ids[..., 0]
        indices = torch.empty(mapped.shape[:-1], dtype=torch.long)
        for start in self.starts.unique().tolist():
            own = (self.starts == start).nonzero()[:, 0]
            similarity = nearest.similarity(mapped[:, own], self.hidden[0, own], metric)
            indices[:, own] = nearest.nearest(similarity, 1)[0][..., 0] + start
        return indices

    def candidate_labels(
        self, lens: Lens, indices: Sequence[int], candidates: Candidates
    ) -> list[str]:
        """The labels of candidates."""
        if candidates == "vocabulary":
            return vocabulary_labels(indices, lens.tokenizer)
        return [self.labels[index] for index in indices]


def split_hidden_states(lens: Lens, texts: Sequence[str], progress: bool) -> list[HiddenStates]:
    """Compute the hidden states of texts and split the texts at random with a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    order: list[int] = torch.randperm(len(texts), generator=generator).tolist()
    traced = [(trace.hidden, trace.tokens) for trace in lens.traces(texts, progress=progress)]
    remaining = iter(order)
    return [
        HiddenStates.concatenate([traced[i] for i in islice(remaining, size)])
        for size in part_sizes(len(texts))
    ]


def part_sizes(count: int) -> tuple[int, int, int]:
    """The numbers of training, validation and test texts."""
    valid = max(1, round(SPLIT[1] * count))
    test = max(1, round(SPLIT[2] * count))
    return count - valid - test, valid, test

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from prosect.anatomy.vocabulary import TERMS
from prosect.corpus.experiments.subsets import indicator, subsets_of
from prosect.corpus.statistics.classifier import Examples
from prosect.corpus.statistics.neighbours import NO_CLASS, knn_classes

SUBSETS = subsets_of(TERMS)
MIX = indicator(SUBSETS, TERMS)


def plainly(
    train: Examples, groups: list[str], test: Examples, asked: list[str], k: int, metric: str
) -> np.ndarray:
    """One vector, one subset and one neighbour at a time."""
    found = np.full((len(SUBSETS), len(test)), NO_CLASS)
    for row, subset in zip(found, SUBSETS, strict=True):
        chosen = [TERMS.index(term) for term in subset]
        for i, group in enumerate(asked):
            x = test.terms[chosen, i].sum(0).numpy()
            near = []
            for j in (j for j, other in enumerate(groups) if other == group):
                y = train.terms[chosen, j].sum(0).numpy()
                if metric == "l2":
                    distance = np.sqrt(((x - y) ** 2).sum())
                else:
                    distance = 1 - x @ y / np.sqrt((x @ x) * (y @ y))
                near.append((distance, int(train.labels[j])))
            votes = [label for _, label in sorted(near, key=lambda pair: pair[0])[:k]]
            if votes:
                row[i] = Counter(votes).most_common(1)[0][0]  # of equals, the first one met
    return found


@pytest.mark.parametrize("metric", ["cosine", "l2"])
@pytest.mark.parametrize("k", [1, 2, 5, 100])
def test_neighbours_are_those_of_a_plain_search(metric: Any, k: int) -> None:
    generator = torch.Generator().manual_seed(0)
    terms = torch.randn(4, 130, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (130,), generator=generator)
    groups = [f"lemma {i % 7}" for i in range(100)]
    asked = [f"lemma {i % 8}" for i in range(30)]  # one of them is new
    everything = Examples(terms, labels)
    train, test = everything[:100], everything[100:]
    found = knn_classes(train, groups, test, asked, MIX, k=k, metric=metric)
    np.testing.assert_array_equal(found, plainly(train, groups, test, asked, k, metric))
    new = np.array([group == "lemma 7" for group in asked])
    assert (found[:, new] == NO_CLASS).all()
    assert (found[:, ~new] != NO_CLASS).all()


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_of_equals_the_first_wins(metric: Any) -> None:
    def at(*angles: float) -> torch.Tensor:
        angle = torch.tensor(angles, dtype=torch.float64)
        one = torch.stack([angle.cos(), angle.sin()], -1)
        return torch.stack([one, *[torch.zeros_like(one)] * 3])

    labels = torch.tensor([4, 2, 2, 4, 9])
    train = Examples(at(0.1, 0.2, 0.3, 0.4, 0.5), labels)
    test = Examples(at(0.0), torch.tensor([0]))
    i = MIX[:1]
    votes = {
        k: knn_classes(train, "aaaaa", test, "a", i, k=k, metric=metric).item() for k in range(1, 6)
    }
    # 4; 4 and 2: the nearer; 2 twice; two each: the nearest; the same
    assert votes == {1: 4, 2: 4, 3: 2, 4: 4, 5: 4}
    # equally near (all of a term that is zero): the order of the training examples
    assert knn_classes(train, "aaaaa", test, "a", MIX[1:2], k=1, metric=metric).item() == 4
    turned = train[torch.tensor([1, 0, 2, 3, 4])]
    assert knn_classes(turned, "aaaaa", test, "a", MIX[1:2], k=1, metric=metric).item() == 2


def test_length_matters_to_distance_and_not_to_cosine() -> None:
    train = Examples(torch.tensor([[[10.0, 1.0], [0.5, 0.5]]] * 4), torch.tensor([0, 1]))
    test = Examples(torch.tensor([[[1.0, 0.0]]] * 4), torch.tensor([0]))
    said = {
        m: knn_classes(train, "aa", test, "a", MIX[:1], k=1, metric=m).item()
        for m in ("cosine", "l2")
    }
    assert said == {"cosine": 0, "l2": 1}

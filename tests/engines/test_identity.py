"""Nearest input embeddings, held against a loop over all pairs."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import prosect
from families import FAMILIES, TEXTS, random_lens
from prosect.engines.identity import METRICS, nearest


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("family", FAMILIES)
def test_neighbours_equal_a_plain_search(family: str, metric: str) -> None:
    trace = random_lens(family).trace(TEXTS[1])
    found = trace.identify(k=4, metric=metric)  # pyright: ignore[reportArgumentType]
    candidates = trace.hidden[0]
    for layer, token in product(range(len(trace.hidden)), range(len(trace.tokens))):
        e = trace.hidden[layer, token]
        if metric == "cosine":
            scores = [float(e @ c / (e.norm() * c.norm())) for c in candidates]
            order = sorted(range(len(scores)), key=lambda j: -scores[j])
        else:
            scores = [float((e - c).square().sum().sqrt()) for c in candidates]
            order = sorted(range(len(scores)), key=lambda j: scores[j])
        assert found.ids[layer, token].tolist() == order[:4]
        expected = [scores[j] for j in order[:4]]
        assert found.scores[layer, token].tolist() == pytest.approx(expected, abs=1e-9)
        assert bool(found.recovered[layer, token]) == (order[0] == token)


def test_every_token_is_its_own_neighbour_at_layer_0() -> None:
    identity = random_lens("bert").trace(TEXTS[0]).identify(k=1, metric="l2")
    assert identity.recovered[0].all()
    assert (identity.scores[0] == 0).all()


def test_among_equal_candidates_the_token_itself_comes_first() -> None:
    scores = torch.tensor([[[0.5, 0.5, 0.1], [0.5, 0.5, 0.1], [0.2, 0.2, 0.2]]])
    ids, best = nearest(scores, 2)
    assert ids[0, :, 0].tolist() == [0, 1, 2]
    assert best[0].tolist() == [[0.5, 0.5], [0.5, 0.5], [pytest.approx(0.2)] * 2]


def test_no_more_neighbours_than_tokens_are_returned() -> None:
    trace = random_lens("gpt2").trace("a")
    assert trace.identify(k=10).ids.shape == (4, 1, 1)


def test_the_two_banks_take_different_paths() -> None:
    trace = prosect.load().trace(TEXTS[0])
    first, second = [i for i, token in enumerate(trace.tokens) if token.text == "bank"]
    ids = trace.identify(k=3).ids
    assert ids[:, first].tolist() != ids[:, second].tolist()
    assert (ids[:, first, 0] == first).all()
    assert (ids[:, second, 0] == second).all()

"""Nearest input embeddings, held against a loop over all pairs."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

import prosect
from prosect.analyses import identity
from prosect.engines.nearest import METRICS, nearest
from support.families import FAMILIES, TEXTS, random_lens


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("family", FAMILIES)
def test_neighbours_equal_a_plain_search(family: str, metric: str) -> None:
    trace = random_lens(family).trace(TEXTS[1])
    found = trace.identify(k=4, metric=metric)
    candidates = trace.hidden[0]
    for layer, token in product(range(len(trace.hidden)), range(len(trace.tokens))):
        e = trace.hidden[layer, token]
        if metric == "dot":
            scores = [float(e @ c) for c in candidates]
            order = sorted(range(len(scores)), key=lambda j: -scores[j])
        elif metric == "cosine":
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


def _vocabulary(lens: prosect.Lens, trace: prosect.Trace, positions: bool) -> torch.Tensor:
    """Every word embedding, with each token's position and type or without, normed as BERT does."""
    embeddings: Any = lens.model.base_model.embeddings
    words = embeddings.word_embeddings.weight
    others = torch.zeros(len(trace.tokens), words.shape[1], dtype=words.dtype)
    if positions:
        others += embeddings.position_embeddings.weight[: len(others)]
        others += embeddings.token_type_embeddings.weight[0]
    return embeddings.LayerNorm(words + others[:, None])


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_the_vocabulary_is_searched_exactly(
    metric: str, positions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "BLOCK", 5000)  # several blocks
    lens = random_lens("bert")
    trace = lens.trace(TEXTS[1])
    found = trace.identify(3, metric, "vocabulary", positions=positions)
    with torch.no_grad():
        candidates = _vocabulary(lens, trace, positions)
    for layer, token in product(range(len(trace.hidden)), range(len(trace.tokens))):
        e, own = trace.hidden[layer, token], candidates[token]
        scores = {
            "cosine": torch.cosine_similarity(own, e, dim=-1),
            "dot": own @ e,
            "l2": -(own - e).norm(dim=-1),
        }[metric]
        best, order = scores.topk(3)
        assert found.ids[layer, token].tolist() == order.tolist()
        expected = (best if metric != "l2" else -best).tolist()
        assert found.scores[layer, token].tolist() == pytest.approx(expected, abs=1e-6)
        right = scores[trace.tokens[token].id]
        assert bool(found.recovered[layer, token]) == (float(right) >= float(best[0]) - 1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_with_its_position_every_token_is_found_among_the_vocabulary_at_layer_0(
    family: str,
) -> None:
    found = random_lens(family).trace(TEXTS[0]).identify(1, "l2", "vocabulary", positions=True)
    assert found.recovered[0].all()
    assert found.scores[0].max() < 1e-5


def test_equal_words_of_the_vocabulary_are_reported_as_ties() -> None:
    lens = random_lens("gpt2")
    (id,) = lens.tokenizer("a").input_ids
    with torch.no_grad():
        lens.anatomy.words.weight[id + 1] = lens.anatomy.words.weight[id]
    found = lens.trace("a").identify(2, "cosine", "vocabulary", positions=True)
    assert found.ties[0].tolist() == [2]
    assert found.recovered[0].all()


@pytest.mark.parametrize("metric", METRICS)
def test_among_equal_words_of_the_vocabulary_the_token_itself_comes_first(metric: str) -> None:
    lens = random_lens("gpt2")
    (id,) = lens.tokenizer("a").input_ids
    weight = lens.anatomy.words.weight
    with torch.no_grad():
        weight[:20] = weight[id]  # more of them than are asked for
    found = lens.trace("a").identify(3, metric, "vocabulary")
    equal = [set(range(20)) | {id}] * len(found.ids)
    for layer, ids in enumerate(found.ids[:, 0].tolist()):
        if found.recovered[layer, 0]:
            assert ids[0] == id
            assert set(ids) <= equal[layer]
            assert found.scores[layer, 0].unique().numel() == 1
        assert (id in ids) == bool(set(ids) & equal[layer])
        assert len(set(ids)) == 3
    assert metric == "dot" or found.recovered[0, 0]


@pytest.mark.parametrize("positions", [False, True])
def test_long_texts_are_searched_some_tokens_at_a_time(
    positions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = random_lens("bert").trace(TEXTS[0])
    expected = whole.identify(4, "l2", "vocabulary", positions=positions)
    monkeypatch.setattr(identity, "VECTORS", 9)  # two tokens of four states
    found = random_lens("bert").trace(TEXTS[0]).identify(4, "l2", "vocabulary", positions=positions)
    assert torch.equal(found.ids, expected.ids)
    torch.testing.assert_close(found.scores, expected.scores)
    assert torch.equal(found.recovered, expected.recovered)
    assert torch.equal(found.ties, expected.ties)


def test_neighbours_are_found_once_and_kept() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    assert not trace.identified(candidates="vocabulary")
    found = trace.identify(candidates="vocabulary")
    assert trace.identify(candidates="vocabulary") is found
    assert trace.identified(candidates="vocabulary")
    assert not trace.identified(metric="l2", candidates="vocabulary")
    assert not trace.identified()
    assert trace.identify(candidates="vocabulary", stem=False) is not found

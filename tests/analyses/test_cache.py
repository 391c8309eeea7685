"""What is kept of a run, and the places that it has."""

from __future__ import annotations

from typing import Any

import pytest

import prosect
from prosect.analyses import maps
from prosect.analyses.kinds import scopes_of
from prosect.analyses.maps import Options
from support.families import SIZES, STACKS, TEXTS, random_lens, sample


@pytest.mark.parametrize("stack", STACKS)
def test_the_sizes_of_a_run_are_those_of_its_tensors(stack: str) -> None:
    trace = sample(stack)
    sizes, block = trace.analyses.sizes, trace.anatomy.blocks[0]
    layers, heads, tokens, _ = trace.attention.shape
    assert (sizes.layers, sizes.heads, sizes.tokens) == (layers, heads, tokens)
    d_in, d_out = block.feed_forward.output.weight.shape
    assert (sizes.d_ff, sizes.d) == (d_in, d_out)
    assert sizes.d_head * heads == block.attention.output.weight.shape[0]
    assert sizes.words == trace.anatomy.words.num_embeddings


@pytest.mark.parametrize("stack", STACKS)
def test_the_scopes_of_the_table_are_those_of_the_engine_in_order(stack: str) -> None:
    trace = sample(stack)
    rows = scopes_of(trace.anatomy.blocks[0])
    assert [row.position for row in rows] == list(range(len(rows)))
    measured = maps.scopes_of(trace.analyses, Options(), feed_forward=True)
    for scopes, block in zip(measured, trace.anatomy.blocks, strict=True):
        assert list(scopes) == [row.name for row in rows]
        assert [row.name for row in scopes_of(block)] == list(scopes)
    through = maps.scopes_of(trace.analyses, Options(), feed_forward=False)[0]
    if not trace.anatomy.blocks[0].parallel:
        assert list(through) == [row.name for row in rows if not row.feed_forward]


def test_a_result_is_computed_once() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    asked: list[Any] = [
        lambda: trace.terms(),
        lambda: trace.map("ATB"),
        lambda: trace.map("ATB", value_bias=False),
        lambda: trace.attention_identifiability(),
        lambda: trace.attribution(probes=2),
        lambda: trace.identify(3),
        lambda: trace.kinds,
    ]
    results = [ask() for ask in asked]
    for ask, found in zip(asked, results, strict=True):
        assert ask() is found
    assert len({id(found) for found in results}) == len(results)


@pytest.mark.parametrize("kind", ["ATBFF", "ATBFFRES", "ATBFFRESLN", "change_FFRES"])
def test_what_is_read_off_the_same_computation_counts_as_computed(kind: str) -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    trace.map("ATB")
    trace.map("ATBFF", baseline="bias")
    assert not trace.computed(kind)
    trace.map("ATBFF")
    assert trace.computed(kind)
    assert not trace.computed("contribution")
    assert not trace.computed("ATBX")


def test_places_that_a_run_does_not_have_are_refused() -> None:
    analyses = random_lens("bert").trace("a river").analyses
    last, count = SIZES["layers"] - 1, analyses.sizes.tokens
    assert analyses.positions(None) == list(range(count))
    assert analyses.positions([-1, 0]) == [count - 1, 0]
    assert analyses.state(-1) == SIZES["layers"]
    assert analyses.layer(last) == last
    refused: list[tuple[Any, str]] = [
        (lambda: analyses.layer(-1), f"layer must be from 0 to {last}, got -1"),
        (lambda: analyses.state(9), f"state must be from -{last + 2} to {last + 1}, got 9"),
        (
            lambda: analyses.positions([99]),
            f"Positions must be from -{count} to {count - 1}, got 99",
        ),
        (lambda: analyses.positions([]), "targets must have at least one position"),
        (lambda: analyses.head(0, 99), "got layer 0 and head 99"),
    ]
    for ask, sentence in refused:
        with pytest.raises(prosect.ProsectError, match=sentence):
            ask()

"""What a trace holds, and what its methods refuse."""

from __future__ import annotations

import pytest
import torch

import prosect
from support.families import (
    FAMILIES,
    SIZES,
    STACKS,
    TEXTS,
    family_of,
    random_lens,
    random_model,
    sample,
    word_pieces,
)


@pytest.mark.parametrize("stack", STACKS)
def test_shapes_are_those_documented(stack: str) -> None:
    trace = sample(stack)
    n, layers = len(trace.tokens), FAMILIES[family_of(stack)].layers
    assert trace.hidden.shape == (layers + 1, n, SIZES["d"])
    assert trace.attention.shape == (layers, SIZES["heads"], n, n)
    terms = trace.terms()
    assert terms.values.shape == (len(terms.names), layers + 1, n, SIZES["d"])
    assert not trace.hidden.requires_grad
    assert not terms.values.requires_grad
    assert not trace.terms("head").values.requires_grad
    assert not trace.neurons(0, 0).values.requires_grad
    if stack in FAMILIES:
        assert trace.encoder is None
        assert trace.cross_attention is None
    else:
        assert trace.encoder is not None
        sources = len(trace.encoder.tokens)
        assert trace.cross_attention is not None
        assert trace.cross_attention.shape == (layers, SIZES["heads"], n, sources)


def test_the_trace_of_a_target_names_both_texts() -> None:
    trace = random_lens("bart").trace("a river", target="the road")
    assert trace.encoder is not None
    counts = len(trace.encoder.tokens), len(trace.tokens)
    expected = "Trace(bart: {} tokens, 'a river' → {} tokens, 'the road')".format(*counts)
    assert repr(trace) == expected


def test_a_single_token_is_traced() -> None:
    trace = random_lens("gpt2").trace("a")
    assert len(trace.tokens) == 1
    assert trace.terms().error < 1e-12
    assert trace.identify().recovered[0].all()


def test_unknown_kinds_and_metrics_are_named() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    with pytest.raises(prosect.ProsectError, match=r"kind must be one of attention.*, got 'ATBX'"):
        trace.map("ATBX")
    with pytest.raises(prosect.ProsectError, match="metric must be one of cosine, l2"):
        trace.identify(metric="L3")
    with pytest.raises(
        prosect.ProsectError, match="candidates must be one of sentence, vocabulary"
    ):
        trace.identify(candidates="world")
    with pytest.raises(prosect.ProsectError, match="at least 1, got 0"):
        trace.identify(k=0)
    for options in ({"positions": True}, {"stem": False}):
        with pytest.raises(
            prosect.ProsectError, match="positions and stem need candidates='vocabulary'"
        ):
            trace.identify(**options)


@pytest.mark.parametrize("wrong", [1.5, "1", None, True, torch.tensor(True)])
def test_a_number_of_the_wrong_type_is_named(wrong: object) -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    with pytest.raises(prosect.ProsectError, match="must be an integer, got"):
        trace.terms("layer", state=wrong)
    with pytest.raises(prosect.ProsectError, match="must be an integer, got"):
        trace.neurons(wrong, 0)
    with pytest.raises(prosect.ProsectError, match="must be an integer, got"):
        trace.predict(position=wrong)


def test_targets_that_are_no_list_and_states_without_a_split_are_refused() -> None:
    lens = random_lens("bert")
    with pytest.raises(prosect.ProsectError, match="batch_size must be an integer, got '4'"):
        list(lens.traces(TEXTS, batch_size="4"))
    trace = lens.trace(TEXTS[0])
    with pytest.raises(prosect.ProsectError, match="targets must be a list of integers, got 3"):
        trace.terms("layer", targets=3)
    with pytest.raises(prosect.ProsectError, match="can only be given with by"):
        trace.terms(targets=[1])  # pyright: ignore


def test_neurons_that_do_not_add_up_are_refused_and_nothing_is_split_exactly() -> None:
    model = random_model("bert")
    dense = model.bert.encoder.layer[1].output.dense
    handle = dense.register_forward_hook(lambda _m, _a, output: 2 * output)
    lens = prosect.Lens(model, word_pieces())
    with pytest.raises(prosect.ReconstructionError, match="layer 2 feed-forward"):
        lens.trace(TEXTS[0]).neurons(1, 1)
    handle.remove()
    with torch.no_grad():
        dense.weight.zero_()
        dense.bias.zero_()
    assert lens.trace(TEXTS[0]).neurons(1, 1).error == 0

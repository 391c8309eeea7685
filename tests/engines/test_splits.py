"""The finer splits: they add up to the coarser ones, and each piece is what a plain loop gives."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

import prosect
from prosect.engines.splits import By, Part, sources_of
from support.families import FAMILIES, PAIRS, STACKS, family_of, random_lens, sample
from support.formulas import Attends, Feeds, Plain, sent, tolerance

SPLITS = get_args(By)


def rounding(stack: str) -> float:
    """How far one split may be from another of the same run: α of BLOOM is rounded to float32."""
    return 1e-6 if FAMILIES[family_of(stack)].float32_softmax else 1e-12


def assert_close(got: Tensor, expected: Tensor, state: Tensor, most: float) -> None:
    assert got.shape == expected.shape
    assert (got - expected).abs().max() <= most * state.abs().max()


def summed(parts: prosect.Parts, *axes: str) -> dict[tuple[Any, ...], Tensor]:
    """The parts added up that agree in these fields of their labels."""
    total: dict[tuple[Any, ...], Tensor] = {}
    for label, vector in zip(parts.labels, parts.values, strict=True):
        key = tuple(getattr(label, axis) for axis in axes)
        total[key] = total[key] + vector if key in total else vector
    return total


@pytest.mark.parametrize("centring", ["bias", "each"])
@pytest.mark.parametrize("stack", STACKS)
def test_every_split_sums_to_the_hidden_state(stack: str, centring: Any) -> None:
    """In float32; in float64 it follows from the sum of the terms and the parts of each term."""
    trace = sample(stack, torch.float32)
    exact = FAMILIES[family_of(stack)].exact(torch.float32)
    for by in SPLITS:
        every = by in ("layer", "norm")
        for state in range(len(trace.hidden)) if every else (0, 1, len(trace.hidden) - 1):
            parts = trace.terms(by, state=state, centring=centring)
            whole = trace.hidden[state]
            gap = ((parts.values.sum(0) - whole).norm(dim=-1) / whole.norm(dim=-1)).max()
            assert gap <= exact, (by, state)
            assert parts.error == pytest.approx(float(gap), rel=0.5, abs=1e-15)
            assert torch.equal(parts.whole, whole)
            assert len(set(parts.labels)) == len(parts.labels) == len(parts.values)


@pytest.mark.parametrize("centring", ["bias", "each"])
@pytest.mark.parametrize("stack", STACKS)
def test_the_parts_of_a_term_sum_to_it(stack: str, centring: Any) -> None:
    trace = sample(stack)
    terms = trace.terms(centring=centring)
    for by in SPLITS:
        for state in range(len(trace.hidden)):
            found = summed(trace.terms(by, state=state, centring=centring), "term")
            for name in terms.names:
                expected = getattr(terms, name)[state]
                got = found.get((name,), torch.zeros_like(expected))
                assert_close(got, expected, trace.hidden[state], rounding(stack))


@pytest.mark.parametrize("centring", ["bias", "each"])
@pytest.mark.parametrize("stack", STACKS)
def test_heads_sum_to_the_layer_and_sources_to_the_head(stack: str, centring: Any) -> None:
    trace = sample(stack)
    layer, head, source = (trace.terms(by, centring=centring) for by in ("layer", "head", "source"))
    for coarse, fine, axes in (
        (layer, head, ("term", "layer", "name")),
        (head, source, ("term", "layer", "head", "name")),
    ):
        expected, got = summed(coarse, *axes), summed(fine, *axes)
        assert expected.keys() == got.keys()
        for key, vector in expected.items():
            assert_close(got[key], vector, trace.hidden[-1], rounding(stack))


@pytest.mark.parametrize("stack", STACKS)
def test_parts_by_layer_equal_the_papers_formulas(stack: str) -> None:
    trace = sample(stack)
    plain = Plain(trace)
    for state in range(len(trace.hidden)):
        parts = trace.terms("layer", state=state)
        for label, vector in zip(parts.labels, parts.values, strict=True):
            if label.term == "bias":
                expected = plain.term(state, "bias")
            else:
                assert label.layer is not None
                expected = plain.parts(state, term=label.term, layer=label.layer + 1)
            assert_close(vector, expected, trace.hidden[state], tolerance(stack))


@pytest.mark.parametrize("stack", STACKS)
def test_sources_equal_a_plain_loop(stack: str) -> None:
    trace = sample(stack)
    plain = Plain(trace)
    targets = torch.tensor([0, 3, len(trace.tokens) - 1])
    records = trace.run.stream.attentions
    assert len(records) == sum(
        isinstance(sublayer, Attends) for layer in plain.model.layers for sublayer in layer
    )
    for record in records:
        sublayers = plain.model.layers[record.layer]
        attends = next(s for s in sublayers if isinstance(s, Attends) and s.term == record.term)
        alpha = plain.alpha(record.layer + 1, record.term)
        x = plain.inputs[record.layer + 1, record.term]
        for head in range(len(alpha)):
            expected = sent(alpha, x, attends, head).detach()
            got = sources_of(record, head, targets)
            assert_close(got, expected[:, targets], expected, 1e-12)


def test_by_source_carries_each_source_through_the_norms_that_follow() -> None:
    for stack in ("bert", "bart-decoder", "llama"):
        trace = sample(stack)
        plain = Plain(trace)
        parts = trace.terms("source", targets=[2])
        for term in ("attention", *(["source"] if trace.encoder is not None else [])):
            for layer, sublayers in enumerate(plain.model.layers, start=1):
                attends = next(s for s in sublayers if isinstance(s, Attends) and s.term == term)
                joined = next(j for j in plain.joined if j.layer == layer and j.term == term)
                carried = plain.G(joined.norms, plain.ends[-1])
                for head in range(len(plain.alpha(layer, term))):
                    x = plain.inputs[layer, term]
                    each = sent(plain.alpha(layer, term), x, attends, head)
                    for source in range(len(x)):
                        (got,) = parts.select(term=term, layer=layer - 1, head=head, source=source)
                        expected = (carried * each[source])[2:3].detach()
                        assert_close(got, expected, trace.hidden[-1], 1e-12)


@pytest.mark.parametrize("stack", STACKS)
def test_embedding_pieces_are_the_looked_up_vectors(stack: str) -> None:
    trace = sample(stack)
    plain = Plain(trace)
    for state in (0, 1, len(trace.hidden) - 1):
        parts = trace.terms("embedding", state=state)
        names = [label.name for label in parts.labels if label.term == "input"]
        assert names == list(plain.model.embeddings)
        for name in names:
            (got,) = parts.select(term="input", name=name)
            expected = plain.parts(state, term="input", name=name)
            assert_close(got, expected.detach(), trace.hidden[state], tolerance(stack))


def test_embedding_pieces_without_a_norm_are_the_looked_up_vectors_themselves() -> None:
    trace = sample("gpt2")
    base: Any = trace.lens.model.base_model
    parts = trace.terms("embedding", state=0)
    ids = torch.tensor([token.id for token in trace.tokens])
    assert torch.equal(parts.select(name="word")[0], base.wte.weight[ids])
    assert torch.equal(parts.select(name="position")[0], base.wpe.weight[: len(ids)])


@pytest.mark.parametrize(
    ("stack", "names"),
    [
        (
            "bert",
            "embedding norm bias, embedding norm mean, layer 1 attention bias, layer 1 norm bias, "
            "layer 1 norm mean, layer 1 feed-forward bias, layer 1 norm bias, layer 1 norm mean",
        ),
        ("gpt2", "layer 1 attention bias, layer 1 feed-forward bias"),
        ("gemma2", "layer 1 attention bias"),
        ("t5", ""),
    ],
)
def test_the_bias_term_is_split_by_norm_and_sublayer(stack: str, names: str) -> None:
    parts = sample(stack).terms("norm", state=1)
    found = [str(label.name) for label in parts.labels if label.term == "bias"]
    wanted = Counter(name for name in names.split(", ") if name)
    assert Counter(found).keys() == wanted.keys()
    final = {str(label.name) for label in sample(stack).terms("norm").labels}
    assert ("final norm bias" in final) == (stack == "gpt2")


@pytest.mark.parametrize("stack", ["bert", "gpt2", "bart-decoder", "opt-post-norm"])
def test_each_piece_of_the_bias_is_what_its_norm_adds(stack: str) -> None:
    """All pieces named after norms, against b and −m·g/σ carried by the plain products."""
    trace = sample(stack)
    plain = Plain(trace)
    state = len(trace.hidden) - 1
    parts = trace.terms("norm", state=state)
    got = torch.zeros_like(trace.hidden[-1])
    for label, vector in zip(parts.labels, parts.values, strict=True):
        if label.name is not None and "norm" in label.name and "embedding" not in label.name:
            got = got + vector
    expected = torch.zeros_like(got)
    for number, norm in enumerate(plain.norms):
        expected = expected + plain.G(number + 1, plain.ends[-1]) * norm.rest
    assert_close(got, expected.detach(), trace.hidden[-1], 1e-12)


@pytest.mark.parametrize("stack", STACKS)
def test_neurons_are_the_longest_and_the_rest_is_exact(stack: str) -> None:
    trace = sample(stack)
    plain = Plain(trace)
    layer, token, k = 1, 2, 5
    feeds = next(s for s in plain.model.layers[layer] if isinstance(s, Feeds))
    activations = feeds.neurons(plain.inputs[layer + 1, "feed_forward"])[token].detach()
    W = feeds.output.W.detach()
    each = [activations[n] * W[n] for n in range(len(W))]
    order = sorted(range(len(W)), key=lambda n: -float(each[n].norm()))
    found = trace.neurons(layer, token, k)
    assert found.ids.tolist() == order[:k]
    whole = torch.stack(each).sum(0)
    assert_close(found.values, torch.stack([each[n] for n in order[:k]]), whole, tolerance(stack))
    rest = torch.stack([each[n] for n in order[k:]]).sum(0)
    assert_close(found.rest, rest, whole, tolerance(stack))
    assert_close(found.values.sum(0) + found.rest, whole, whole, tolerance(stack))
    assert found.error <= 1e-12


@pytest.mark.parametrize("stack", STACKS)
def test_all_neurons_leave_no_rest(stack: str) -> None:
    trace = sample(stack, torch.float32)
    found = trace.neurons(0, -1, k=10_000)
    width = trace.anatomy.blocks[0].feed_forward.output.weight.shape[0]
    assert sorted(found.ids.tolist()) == list(range(width))
    assert (found.rest == 0).all()
    assert found.error <= 1e-5


def test_neurons_of_one_layer_sum_to_what_it_wrote_to_the_stream() -> None:
    trace = sample("gpt2")
    found = trace.neurons(1, 3)
    (part,) = trace.terms("layer", state=2, targets=[3]).select(term="feed_forward", layer=1)
    assert_close(found.values.sum(0) + found.rest, part[0], part, 1e-12)


def test_targets_are_taken_in_the_order_named() -> None:
    trace = sample("bert")
    for by in SPLITS:
        every = trace.terms(by)
        some = trace.terms(by, targets=[-1, 2, 2, 0])
        places = [len(trace.tokens) - 1, 2, 2, 0]
        assert some.targets == places
        assert some.labels == every.labels
        torch.testing.assert_close(some.values, every.values[:, places], rtol=0, atol=1e-12)
        assert torch.equal(some.whole, trace.hidden[-1, places])


def test_labels_say_where_a_part_was_written() -> None:
    trace = sample("bart-decoder")
    layers, heads, n, sources = (3, 4, len(trace.tokens), len(trace.encoder.tokens))  # pyright: ignore
    assert n != sources
    labels = trace.terms("layer").labels
    assert labels[0] == Part("input", -1)
    assert {label.layer for label in labels if label.term != "bias"} == {-1, 0, 1, 2}
    assert Part("bias") in labels
    labels = trace.terms("head").labels
    assert len([label for label in labels if label.head is not None]) == 2 * layers * heads
    labels = trace.terms("source").labels
    per_layer = Counter((label.term, label.layer, label.head) for label in labels)
    assert per_layer["attention", 2, 3] == n
    assert per_layer["source", 2, 3] == sources
    early = trace.terms("source", state=1).labels
    assert {label.layer for label in early} == {-1, 0, None}


def test_select_picks_the_parts_that_agree() -> None:
    parts = sample("bert").terms("head")
    picked = parts.select(term="attention", layer=2)
    assert picked.shape[0] == 4
    where = [label.term == "attention" and label.layer == 2 for label in parts.labels]
    assert torch.equal(picked, parts.values[torch.tensor(where)])
    assert parts.select(layer=99).shape[0] == 0
    assert len(parts.select()) == len(parts.labels)


def test_importance_of_finer_parts_sums_to_one() -> None:
    for by in SPLITS:
        importance = sample("electra-small").terms(by).importance()
        torch.testing.assert_close(
            importance.sum(0), torch.ones_like(importance[0]), rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("family", PAIRS)
def test_cross_attention_is_a_part_of_its_own(family: str) -> None:
    trace = sample(f"{family}-decoder")
    parts = trace.terms("layer")
    assert len(parts.select(term="source")) == len(parts.select(term="attention")) == 3
    assert (parts.select(term="source").norm(dim=-1) > 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "neuron"}, "by must be one of layer, head, source, norm"),
        ({"by": "head", "centring": "none"}, "centring must be one of bias, each, got .none."),
        ({"centring": "none"}, "centring must be one of bias, each, got .none."),
        ({"by": "head", "state": 4}, "state must be from -4 to 3, got 4"),
        ({"by": "head", "state": -5}, "state must be from -4 to 3, got -5"),
        ({"by": "head", "targets": [0, 99]}, "Positions must be from -16 to 15, got 99"),
        ({"by": "head", "targets": [-17]}, "Positions must be from -16 to 15, got -17"),
    ],
)
def test_a_split_that_there_is_not_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(prosect.ProsectError, match=message):
        sample("bert").terms(**arguments)


def test_no_target_at_all_is_refused() -> None:
    with pytest.raises(prosect.ProsectError, match="at least one position"):
        sample("bert").terms("layer", targets=[])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 0), "layer must be from 0 to 2, got 3"),
        ((-1, 0), "layer must be from 0 to 2, got -1"),
        ((0, 99), "Positions must be from -16 to 15, got 99"),
        ((0, 0, 0), "k must be at least 1, got 0"),
    ],
)
def test_neurons_that_there_are_not_are_refused(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(prosect.ProsectError, match=message):
        sample("bert").neurons(*arguments)


def test_a_split_that_would_not_fit_in_memory_says_how_much_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = random_lens("bert").trace("the river bank and the road along it")
    size = 3 * 4 * len(trace.tokens) * 32 * 8  # bytes of one target
    monkeypatch.setattr("prosect.analyses.terms.MEMORY", 2 * size)
    with pytest.raises(prosect.ProsectError, match="name at most 2 targets"):
        trace.terms("source")
    assert trace.terms("source", targets=[0, 1]).error <= 1e-12
    assert trace.terms("head").error <= 1e-12

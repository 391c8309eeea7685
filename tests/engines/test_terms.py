"""The terms, held against the formulas of Mickus et al. (2022) written out plainly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import prosect
from support.families import FAMILIES, PAIRS, STACKS, TEXTS, family_of, random_lens, sample
from support.formulas import Plain, tolerance

EXACT = {torch.float32: 1e-5, torch.float64: 1e-12}


def gap(total: Tensor, whole: Tensor) -> float:
    """The largest |total − whole| / |whole| over vectors."""
    return float(((total - whole).norm(dim=-1) / whole.norm(dim=-1)).max())


@pytest.mark.parametrize("centring", ["bias", "each"])
@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("stack", STACKS)
def test_terms_sum_to_every_hidden_state(stack: str, dtype: torch.dtype, centring: str) -> None:
    trace = sample(stack, dtype)
    terms = trace.terms(centring=centring)
    total = terms.input + terms.attention + terms.feed_forward + terms.bias
    if terms.source is not None:
        total = total + terms.source
    assert gap(total, trace.hidden) <= FAMILIES[family_of(stack)].exact(dtype)
    assert terms.error == pytest.approx(gap(total, trace.hidden), rel=0.5, abs=1e-15)
    assert torch.equal(terms.whole, trace.hidden)


@pytest.mark.parametrize("stack", STACKS)
def test_terms_equal_the_papers_formulas(stack: str) -> None:
    _assert_terms_equal_the_formulas(sample(stack), tolerance(stack))


def test_terms_of_real_weights_equal_the_papers_formulas() -> None:
    _assert_terms_equal_the_formulas(prosect.load(dtype=torch.float64).trace(TEXTS[0]), 1e-11)


def _assert_terms_equal_the_formulas(trace: prosect.Trace, most: float) -> None:
    plain, terms = Plain(trace), trace.terms()
    for layer, state in enumerate(trace.hidden):
        for name in terms.names:
            off = getattr(terms, name)[layer] - plain.term(layer, name)
            assert off.abs().max() <= most * state.abs().max(), f"{name} of layer {layer}"


def test_no_term_is_nothing() -> None:
    """Each term is a good part of the first layer's state: a formula has something to miss."""
    for stack in STACKS:
        terms = sample(stack).terms()
        for name, share in zip(terms.names, terms.norm()[:, 1].mean(-1), strict=True):
            if name == "bias" and not FAMILIES[family_of(stack)].biases:
                assert share == 0, stack
            else:
                assert share > 0.01, (stack, name)


@pytest.mark.parametrize("family", PAIRS)
def test_only_a_decoder_that_attends_to_a_source_has_the_fifth_term(family: str) -> None:
    decoder = sample(f"{family}-decoder").terms()
    assert decoder.names == ("input", "attention", "feed_forward", "bias", "source")
    assert decoder.source is not None
    assert decoder.source.norm() > 0
    assert sample(family).terms().source is None


@pytest.mark.parametrize("stack", STACKS)
def test_each_part_can_be_centred_by_itself(stack: str) -> None:
    """After the last norm, gains divided out, nothing but the norm's own bias has a mean."""
    trace = sample(stack)
    own, shared = trace.terms(centring="each"), trace.terms()
    plain = Plain(trace)
    norm = plain.model.final or plain.model.layers[-1][-1].norm
    if "RMS" in type(norm).__name__ or type(norm).__name__.startswith("T5"):
        assert torch.equal(own.values, shared.values)  # there is no mean
        return
    bias = own.names.index("bias")
    last = own.values[:, -1].clone()
    last[bias] -= norm.bias.detach()
    means = (last / norm.weight.detach()).mean(-1)
    assert means.abs().max() < 1e-12
    assert (shared.values[:, -1] / norm.weight.detach()).mean(-1).abs().max() > 1e-3


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("text", TEXTS)
def test_terms_of_real_weights_sum_to_every_hidden_state(text: str, dtype: torch.dtype) -> None:
    trace = prosect.load(dtype=dtype).trace(text)
    assert trace.terms().error <= EXACT[dtype]
    assert trace.terms().importance().sum(0).sub(1).abs().max() <= EXACT[dtype]


def test_minilm_has_the_shares_that_were_computed_for_it_in_float64() -> None:
    importance = prosect.load(dtype=torch.float64).trace(TEXTS[0]).terms().importance().mean(-1)
    for layer, expected in {1: (0.63, 0.10, 0.25, 0.03), 6: (0.16, 0.42, 0.42, 0.0)}.items():
        assert importance[:, layer].tolist() == pytest.approx(expected, abs=0.011)


def test_norm_and_cosine_follow_their_definitions() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    terms = trace.terms()
    e = trace.hidden
    for k, name in enumerate(terms.names):
        a = getattr(terms, name)
        lengths = a.square().sum(-1).sqrt(), e.square().sum(-1).sqrt()
        torch.testing.assert_close(terms.norm()[k], lengths[0] / lengths[1])
        inner = (a * e).sum(-1)
        expected = torch.where(lengths[0] > 0, inner / (lengths[0] * lengths[1]), 0.0)
        torch.testing.assert_close(terms.cosine()[k], expected)
        torch.testing.assert_close(terms.importance()[k], inner / lengths[1] ** 2)


@pytest.mark.parametrize(
    ("family", "sublayer", "named"),
    [
        ("bert", "attention", "layer 2 attention"),
        ("bert", "feed_forward", "layer 2 feed-forward"),
        ("gpt2", "feed_forward", "layer 2 feed-forward"),
    ],
)
def test_a_sum_that_breaks_names_the_step(family: str, sublayer: str, named: str) -> None:
    lens = random_lens(family)
    block = lens.anatomy.blocks[1]
    # behind the watched module, so that the stream gets something that no part accounts for
    dropout = {
        ("bert", "attention"): lambda m: m.attention.output.dropout,
        ("bert", "feed_forward"): lambda m: m.output.dropout,
        ("gpt2", "feed_forward"): lambda m: m.mlp.dropout,
    }[family, sublayer](block.module)
    dropout.register_forward_hook(lambda _m, _a, output: output + 0.5 * output.roll(1, -1))
    with pytest.raises(prosect.ReconstructionError, match=f"first at the {named}"):
        lens.trace(TEXTS[0]).terms()

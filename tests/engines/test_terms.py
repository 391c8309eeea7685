"""The four terms, held against the formulas of Mickus et al. (2022) written out plainly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import prosect
from families import FAMILIES, TEXTS, random_lens

EXACT = {torch.float32: 1e-5, torch.float64: 1e-12}


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("family", FAMILIES)
def test_terms_sum_to_every_hidden_state(family: str, dtype: torch.dtype) -> None:
    trace = random_lens(family, dtype).trace(TEXTS[0])
    terms = trace.terms()
    total = terms.input + terms.attention + terms.feed_forward + terms.bias
    gap = (total - trace.hidden).norm(dim=-1) / trace.hidden.norm(dim=-1)
    assert gap.max() <= EXACT[dtype]
    assert terms.error == pytest.approx(float(gap.max()), rel=1e-2, abs=1e-15)


@pytest.mark.parametrize("family", FAMILIES)
def test_importance_sums_to_one(family: str) -> None:
    importance = random_lens(family).trace(TEXTS[0]).terms().importance()
    torch.testing.assert_close(
        importance.sum(0), torch.ones_like(importance[0]), rtol=0, atol=1e-12
    )


def _post_norm_terms(trace: prosect.Trace) -> list[list[Tensor]]:
    """i, h, f, c of each layer by the products of gains and spreads, as the paper writes them.

    G(λ) is the product of g_μ / σ_μ over the norms μ ≥ λ applied so far; norms are numbered from 1
    in order of application. Everything is read off the model's weights and a run of its modules.
    """
    lens = trace.lens
    base = lens.model.base_model
    distil = lens.anatomy.family == "DistilBERT"
    layers = base.transformer.layer if distil else base.encoder.layer
    project = getattr(base, "embeddings_project", None)
    norms = [base.embeddings.LayerNorm]
    inputs = dict(lens.tokenizer(trace.texts[0], return_tensors="pt"))
    if distil:
        inputs.pop("token_type_ids")
    pre_norm_inputs: list[Tensor] = []
    for layer in layers:
        if distil:
            norms += [layer.sa_layer_norm, layer.output_layer_norm]
        else:
            norms += [layer.attention.output.LayerNorm, layer.output.LayerNorm]
    hooks = [
        norm.register_forward_pre_hook(lambda _, args: pre_norm_inputs.append(args[0][0]))
        for norm in norms
    ]
    with torch.no_grad():
        base(**inputs)
    for hook in hooks:
        hook.remove()
    gain = [norm.weight for norm in norms]
    shift = [norm.bias for norm in norms]
    mean = [x.mean(-1, keepdim=True) for x in pre_norm_inputs]
    sigma = [
        (x.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
        for x, norm in zip(pre_norm_inputs, norms, strict=True)
    ]

    def G(first: int, last: int) -> Tensor | float:  # norms first..last, counted from 1
        product: Tensor | float = 1.0
        for k in range(first - 1, last):
            product = product * gain[k] / sigma[k]
        return product

    def linear(module: torch.nn.Module) -> tuple[Tensor, Tensor]:
        return module.weight.T, module.bias

    written: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for number, layer in enumerate(layers):
        x = trace.hidden[number]
        alpha = trace.attention[number]
        if distil:
            (WV, bV), (WO, bO) = linear(layer.attention.v_lin), linear(layer.attention.out_lin)
            (W1, b1), (W2, b2) = linear(layer.ffn.lin1), linear(layer.ffn.lin2)
        else:
            own = layer.attention
            (WV, bV), (WO, bO) = linear(own.self.value), linear(own.output.dense)
            (W1, b1), (W2, b2) = linear(layer.intermediate.dense), linear(layer.output.dense)
        size = WV.shape[1] // len(alpha)
        h = torch.zeros_like(x)
        for head in range(len(alpha)):
            columns = slice(head * size, (head + 1) * size)
            h = h + alpha[head] @ (x @ WV[:, columns]) @ WO[columns]
        a = torch.nn.functional.layer_norm(
            x + h + bO + bV @ WO,
            x.shape[-1:],
            gain[2 * number + 1],
            shift[2 * number + 1],
            norms[2 * number + 1].eps,
        )
        f = torch.nn.functional.gelu(a @ W1 + b1) @ W2
        written.append((h, f, bO + bV @ WO, b2))

    embedded = pre_norm_inputs[0]
    result = []
    for number in range(len(layers) + 1):
        last = 2 * number + 1
        if project is None:
            i = G(1, last) * embedded
            c0 = G(2, last) * shift[0] - G(1, last) * mean[0]
        else:
            W, b = linear(project)
            i = G(2, last) * ((G(1, 1) * embedded) @ W)
            c0 = G(2, last) * ((shift[0] - G(1, 1) * mean[0]) @ W + b)
        h, f, c = torch.zeros_like(i), torch.zeros_like(i), c0 + torch.zeros_like(i)
        for k in range(number):
            attended, fed, bias_attention, bias_feed_forward = written[k]
            h = h + G(2 * k + 2, last) * attended
            f = f + G(2 * k + 3, last) * fed
            c = c + G(2 * k + 2, last) * bias_attention + G(2 * k + 3, last) * bias_feed_forward
        for norm in range(2, last + 1):
            c = c + G(norm + 1, last) * shift[norm - 1] - G(norm, last) * mean[norm - 1]
        result.append([i, h, f, c])
    return result


def _pre_norm_terms(trace: prosect.Trace) -> list[list[Tensor]]:
    """The same for GPT-2: the stream is a plain sum, the final norm acts on all terms alike."""
    base = trace.lens.model.base_model
    ids = trace.lens.tokenizer(trace.texts[0], return_tensors="pt").input_ids[0]
    x0 = base.wte.weight[ids] + base.wpe.weight[: len(ids)]
    i, h, f, c = x0, torch.zeros_like(x0), torch.zeros_like(x0), torch.zeros_like(x0)
    result = [[i, h, f, c]]
    d = x0.shape[-1]
    x = x0
    for number, layer in enumerate(base.h):
        normed = layer.ln_1(x)
        WV, bV = layer.attn.c_attn.weight[:, 2 * d :], layer.attn.c_attn.bias[2 * d :]
        WO, bO = layer.attn.c_proj.weight, layer.attn.c_proj.bias
        alpha = trace.attention[number]
        size = d // len(alpha)
        attended = torch.zeros_like(x)
        for head in range(len(alpha)):
            columns = slice(head * size, (head + 1) * size)
            attended = attended + alpha[head] @ (normed @ WV[:, columns]) @ WO[columns]
        x = x + attended + bO + bV @ WO
        inner = layer.ln_2(x) @ layer.mlp.c_fc.weight + layer.mlp.c_fc.bias
        fed = torch.nn.functional.gelu(inner, approximate="tanh") @ layer.mlp.c_proj.weight
        x = x + fed + layer.mlp.c_proj.bias
        h, f, c = h + attended, f + fed, c + bO + bV @ WO + layer.mlp.c_proj.bias
        result.append([i, h, f, c])
    norm = base.ln_f
    sigma = (x.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    scale = norm.weight / sigma
    result[-1] = [
        i * scale,
        h * scale,
        f * scale,
        c * scale + norm.bias - scale * x.mean(-1, keepdim=True),
    ]
    return result


@pytest.mark.parametrize("family", FAMILIES)
def test_terms_equal_the_papers_formulas(family: str) -> None:
    _assert_terms_equal_the_formulas(random_lens(family).trace(TEXTS[0]), 1e-11)


def test_terms_of_real_weights_equal_the_papers_formulas() -> None:
    _assert_terms_equal_the_formulas(prosect.load(dtype=torch.float64).trace(TEXTS[0]), 1e-11)


def _assert_terms_equal_the_formulas(trace: prosect.Trace, tolerance: float) -> None:
    formulas = _pre_norm_terms if trace.lens.anatomy.family == "GPT-2" else _post_norm_terms
    terms = trace.terms()
    with torch.no_grad():
        for layer, expected in enumerate(formulas(trace)):
            for name, value in zip(terms.names, expected, strict=True):
                got = getattr(terms, name)[layer]
                gap = (got - value).abs().max() / trace.hidden[layer].abs().max()
                assert gap <= tolerance, f"{name} of layer {layer}"


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

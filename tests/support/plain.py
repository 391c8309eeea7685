"""Maps the plain way: every part a vector of its own, integrals by quadrature, weights off the model.

Written from the formulas of Kobayashi et al. (2020, 2021, 2024), in float64, n × n × d at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import pi, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

import prosect

Activation = Callable[[Tensor], Tensor]
Split = tuple[Tensor, Tensor]
"""Parts [source, target, d], and what is of no token [target, d]."""

ACTIVATIONS: dict[str, Activation] = {
    "gelu": lambda p: p * 0.5 * (1 + torch.erf(p / sqrt(2))),
    "gelu_new": lambda p: 0.5 * p * (1 + torch.tanh(sqrt(2 / pi) * (p + 0.044715 * p**3))),
    "gelu_pytorch_tanh": lambda p: ACTIVATIONS["gelu_new"](p),
    "relu": lambda p: p * (p > 0),
    "silu": lambda p: p / (1 + torch.exp(-p)),
    "quick_gelu": lambda p: p / (1 + torch.exp(-1.702 * p)),
}


@dataclass
class Norm:
    """gain ⊙ (y − mean) / σ + bias; without the mean where it is RMSNorm."""

    gain: Tensor
    bias: Tensor | float
    epsilon: float
    centred: bool = True

    def __call__(self, y: Tensor) -> Tensor:
        return self.of_a_part(y, y) + self.bias

    def of_a_part(self, part: Tensor, whole: Tensor) -> Tensor:
        """g(y_j) = γ ⊙ (y_j − mean(y_j)) / σ(whole)."""
        if not self.centred:
            return self.gain * part / (whole.square().mean(-1, keepdim=True) + self.epsilon).sqrt()
        sigma = (whole.var(-1, unbiased=False, keepdim=True) + self.epsilon).sqrt()
        return self.gain * (part - part.mean(-1, keepdim=True)) / sigma

    def split(self, split: Split) -> Split:
        parts, rest = split
        whole = parts.sum(0) + rest
        return self.of_a_part(parts, whole), self.of_a_part(rest, whole) + self.bias


@dataclass
class Weights:
    """One layer, read off a transformers model; maps are [in, out]."""

    heads: int
    W_V: Tensor
    b_value: Tensor | None
    W_O: Tensor
    b_output: Tensor | None
    W_1: Tensor
    b_1: Tensor | None
    W_2: Tensor
    b_2: Tensor | None
    g: Activation
    gate: Tensor | None = None
    before_attention: Norm | None = None
    after_attention: Norm | None = None
    middle: Norm | None = None
    before_feed_forward: Norm | None = None
    after_feed_forward: Norm | None = None
    end: Norm | None = None
    parallel: bool = False

    def value_output(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """W_V, b_V and W_O of every head; heads may share a value."""
        W_O = self.W_O.chunk(self.heads, dim=0)
        size = W_O[0].shape[0]
        shared = self.heads * size // self.W_V.shape[1]
        found = []
        for head in range(self.heads):
            columns = slice(head // shared * size, (head // shared + 1) * size)
            b_value = torch.zeros(size).double() if self.b_value is None else self.b_value[columns]
            found.append((self.W_V[:, columns], b_value, W_O[head]))
        return found


def weights_of(model: Any, number: int) -> Weights:
    """The weights of a layer of BERT, GPT-2, LLaMA, GPT-J or Gemma 2."""
    config, base = model.config, model.base_model

    def linear(module: Any) -> tuple[Tensor, Tensor | None]:
        bias = None if module.bias is None else module.bias.detach().double()
        return module.weight.detach().double().T, bias

    def layer_norm(module: Any) -> Norm:
        return Norm(module.weight.detach().double(), module.bias.detach().double(), module.eps)

    def rms_norm(module: Any) -> Norm:
        if config.model_type == "gemma2":
            return Norm(1 + module.weight.detach().double(), 0.0, module.eps, centred=False)
        return Norm(module.weight.detach().double(), 0.0, module.variance_epsilon, centred=False)

    match config.model_type:
        case "bert":
            layer = base.encoder.layer[number]
            own, written = layer.attention.self, layer.attention.output
            return Weights(
                config.num_attention_heads,
                *linear(own.value),
                *linear(written.dense),
                *linear(layer.intermediate.dense),
                *linear(layer.output.dense),
                ACTIVATIONS[config.hidden_act],
                middle=layer_norm(written.LayerNorm),
                end=layer_norm(layer.output.LayerNorm),
            )
        case "gpt2":
            layer, d = base.h[number], config.n_embd
            fused, out, mlp = layer.attn.c_attn, layer.attn.c_proj, layer.mlp
            W_O, b_output, W_1, b_1, W_2, b_2 = (
                x.detach().double()
                for m in (out, mlp.c_fc, mlp.c_proj)
                for x in (m.weight, m.bias)  # stored as [in, out]
            )
            return Weights(
                config.n_head,
                fused.weight.detach().double()[:, 2 * d :],
                fused.bias.detach().double()[2 * d :],
                *(W_O, b_output),
                *(W_1, b_1, W_2, b_2),
                ACTIVATIONS[config.activation_function],
                before_attention=layer_norm(layer.ln_1),
                before_feed_forward=layer_norm(layer.ln_2),
            )
        case "gptj":
            layer = base.h[number]
            return Weights(
                config.n_head,
                *linear(layer.attn.v_proj),
                *linear(layer.attn.out_proj),
                *linear(layer.mlp.fc_in),
                *linear(layer.mlp.fc_out),
                ACTIVATIONS[config.activation_function],
                before_attention=layer_norm(layer.ln_1),
                before_feed_forward=layer_norm(layer.ln_1),
                parallel=True,
            )
        case "llama" | "gemma2" as kind:
            layer, mlp = base.layers[number], base.layers[number].mlp
            sandwich = kind == "gemma2"
            after = layer.post_attention_layernorm
            return Weights(
                config.num_attention_heads,
                *linear(layer.self_attn.v_proj),
                *linear(layer.self_attn.o_proj),
                *linear(mlp.gate_proj),
                *linear(mlp.down_proj),
                ACTIVATIONS[config.hidden_activation if sandwich else config.hidden_act],
                gate=linear(mlp.up_proj)[0],
                before_attention=rms_norm(layer.input_layernorm),
                after_attention=rms_norm(after) if sandwich else None,
                before_feed_forward=rms_norm(
                    layer.pre_feedforward_layernorm if sandwich else after
                ),
                after_feed_forward=rms_norm(layer.post_feedforward_layernorm) if sandwich else None,
            )
        case other:
            raise ValueError(f"{other} is not written out plainly here")


# --- one layer ------------------------------------------------------------------------------------


def sent_by_tokens(w: Weights, x: Tensor, alpha: Tensor, value_bias: bool = True) -> list[Split]:
    """For each head α_ij f(x_j), f(x) = (x W_V [+ b_V]) W_O, and what is left: b_V W_O, if any.

    b_O belongs to no head and is left out.
    """
    read = x if w.before_attention is None else w.before_attention(x)
    found = []
    for a, (W_V, b_value, W_O) in zip(alpha, w.value_output(), strict=True):
        f = (read @ W_V + (b_value if value_bias else 0)) @ W_O
        rest = torch.zeros_like(x) if value_bias else (b_value @ W_O).expand_as(x)
        found.append((a.T[:, :, None] * f[:, None], rest))
    return found


def scopes(
    w: Weights, x: Tensor, alpha: Tensor, *, value_bias: bool = True, baseline: str = "zero"
) -> dict[str, Split]:
    """The parts of every scope of one layer whose stream is x: each token is a part of its own."""
    heads = sent_by_tokens(w, x, alpha, value_bias)
    sent = sum(parts for parts, _ in heads), sum(rest for _, rest in heads) + _or_zero(w.b_output)
    return onward(w, (alone(x), torch.zeros_like(x)), sent, baseline)


def alone(x: Tensor) -> Tensor:
    """Each token's vector as the part [source, target, d] that it is of itself."""
    return torch.eye(len(x), dtype=x.dtype)[:, :, None] * x


def onward(w: Weights, stream: Split, sent: Split, baseline: str) -> dict[str, Split]:
    """The scopes of a layer from the parts of its stream and the parts that attention wrote."""
    found = {"ATTN": sent}
    if w.after_attention is not None:
        found["ATTNLN"] = sent = w.after_attention.split(sent)
    mixed = _plus(stream, sent)
    if w.middle is not None:
        found["ATTNRES"] = mixed
        mixed = w.middle.split(mixed)
    found["ATB"] = mixed
    read, name = stream if w.parallel else mixed, "ATB"
    if w.before_feed_forward is not None:
        read = w.before_feed_forward.split(read)
        if not w.parallel:
            name = "ATBLN"
            found[name] = read
    fed = feed_forward(w, read, baseline)
    name += "FF"
    if w.parallel:
        found["ATBFF"] = _plus(mixed, fed)
        return found
    found[name] = fed
    if w.after_feed_forward is not None:
        name += "LN"
        found[name] = fed = w.after_feed_forward.split(fed)
    name += "RES"
    found[name] = after = _plus(mixed, fed)
    if w.end is not None:
        found[name + "LN"] = w.end.split(after)
    return found


def feed_forward(w: Weights, split: Split, baseline: str) -> Split:
    """Integrated gradients of the activation along the straight path from the baseline."""
    parts, rest = split
    p, p0 = parts @ w.W_1, rest @ w.W_1 + _or_zero(w.b_1)
    whole = p.sum(0) + p0
    start = p0 if baseline == "bias" else torch.zeros_like(p0)
    if w.gate is None:
        theta = along_path(lambda t: slope(w.g, start + t * (whole - start)))
        kept = w.g(p0) if baseline == "bias" else theta * p0
        return theta * p @ w.W_2, kept @ w.W_2 + _or_zero(w.b_2)
    q, q0 = parts @ w.gate, rest @ w.gate
    whole_q = q.sum(0) + q0
    start_q = q0 if baseline == "bias" else torch.zeros_like(q0)
    A = along_path(
        lambda t: slope(w.g, start + t * (whole - start)) * (start_q + t * (whole_q - start_q))
    )
    B = along_path(lambda t: w.g(start + t * (whole - start)))
    kept = w.g(p0) * q0 if baseline == "bias" else A * p0 + B * q0
    return (A * p + B * q) @ w.W_2, kept @ w.W_2 + _or_zero(w.b_2)


def along_path(f: Callable[[float], Tensor], nodes: int = 400) -> Tensor:
    """∫₀¹ f(t) dt by Gauss-Legendre."""
    places, weights = np.polynomial.legendre.leggauss(nodes)
    return sum(
        (w * f((t + 1) / 2) for t, w in zip(places, weights / 2, strict=True)), torch.zeros(())
    )


def slope(g: Activation, p: Tensor) -> Tensor:
    """g'."""
    with torch.enable_grad():
        at = p.detach().clone().requires_grad_()
        return torch.autograd.grad(g(at).sum(), at)[0]


def _plus(a: Split, b: Split) -> Split:
    return a[0] + b[0], a[1] + b[1]


def _or_zero(bias: Tensor | None) -> Tensor | float:
    return 0.0 if bias is None else bias


# --- all layers -----------------------------------------------------------------------------------


def contributions(trace: prosect.Trace, start: Split, baseline: str = "zero") -> list[Split]:
    """The parts of each input token after every layer, before any final norm."""
    found = [start]
    for number, alpha in enumerate(trace.attention.double()):
        w = weights_of(trace.lens.model, number)
        stream = found[-1]
        parts, rest = stream if w.before_attention is None else w.before_attention.split(stream)
        sent, sent_rest = torch.zeros_like(parts), torch.zeros_like(rest) + _or_zero(w.b_output)
        for a, (W_V, b_value, W_O) in zip(alpha, w.value_output(), strict=True):
            sent = sent + a @ (parts @ W_V @ W_O)
            sent_rest = sent_rest + a @ (rest @ W_V + b_value) @ W_O
        *_, last = onward(w, stream, (sent, sent_rest), baseline).values()
        found.append(last)
    return found


# --- measures -------------------------------------------------------------------------------------


def lengths(parts: Tensor) -> Tensor:
    """[target, source]."""
    return parts.square().sum(-1).sqrt().T


def alti(parts: Tensor, whole: Tensor) -> Tensor:
    """Shares of max(0, |y|₁ − |y − part|₁), [target, source] (Ferrando et al. 2022)."""
    n = len(whole)
    near = torch.zeros(n, n, dtype=whole.dtype)
    for i in range(n):
        for j in range(n):
            near[i, j] = max(0.0, whole[i].abs().sum() - (whole[i] - parts[j, i]).abs().sum())
    return near / near.sum(1, keepdim=True)


def gap(a: Tensor | Sequence[float], b: Tensor) -> float:
    """The largest difference, over the largest value."""
    a = torch.as_tensor(a)
    return float((a.double() - b.double()).abs().max() / b.abs().max().clamp_min(1e-30))

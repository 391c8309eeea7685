"""How the activation of a feed-forward is divided among the parts of its input.

Integrated gradients of an activation g along the straight path to p = Σ p_j + p_0 give part j
IG_j = p_j (g(p) − g(b)) / (p − b), b where the path starts: exact, in closed form, and linear in the
parts once p is frozen (Kobayashi et al. 2024, with the integral solved).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from prosect.engines.records import Activation

Baseline = Literal["zero", "bias"]
"""Where the paths of integrated gradients start: at zero, as in the paper, or at the token-less part."""


def ratio(
    g: Activation, p: Float[Tensor, "*axes"], start: Float[Tensor, "*axes"] | None = None
) -> Float[Tensor, "*axes"]:
    """θ = (g(p) − g(b)) / (p − b), b = 0 by default; g' at the midpoint where p and b are close.

    For GELU from zero this is Φ(p), for SiLU the sigmoid, for ReLU the step function.
    """
    b = torch.zeros_like(p) if start is None else start
    # float64 keeps the quotient of small differences as good as the values
    wide_p, wide_b = p.double(), b.double()
    step = wide_p - wide_b
    near = _near(step, start)
    quotient = (g(wide_p) - g(wide_b)) / torch.where(near, torch.ones_like(step), step)
    quotient[near] = slope(g, (wide_p[near] + wide_b[near]) / 2)
    return quotient.to(p.dtype)


def _near(step: Tensor, start: Tensor | None) -> Tensor:
    """Where p − b is too small to divide by: from zero, where g(0) = 0, only at zero itself."""
    return step == 0 if start is None else step.abs() < 1e-6 * (1 + start.double().abs())


def slope(g: Activation, x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """g', by automatic differentiation."""
    with torch.inference_mode(False), torch.enable_grad():
        at = x.detach().clone().requires_grad_()
        return torch.autograd.grad(g(at).sum(), at)[0]


def mean_along_path(
    g: Activation,
    p: Float[Tensor, "*axes"],
    start: Float[Tensor, "*axes"] | None = None,
    tolerance: float = 1e-7,
) -> Float[Tensor, "*axes"]:
    """∫₀¹ g(b + t (p − b)) dt by Gauss-Legendre, with nodes doubled until it is stable to ``tolerance``.

    Relative to the largest value of g on the path; at most 128 nodes. From zero, GELU and SiLU come
    out to 1e-10 up to |p| = 1000; where a path has a kink inside, or a step as sharp as one (from the
    biases, some hundreds across zero), to 1e-4.
    """
    b = torch.zeros_like(p) if start is None else start
    nodes, before = 8, None
    while True:
        now = _gauss_legendre(g, p, b, nodes)
        if before is not None:
            moved = (now - before).abs().max() / now.abs().max().clamp_min(1e-30)
            if moved <= tolerance or nodes >= 128:
                return now
        before, nodes = now, 2 * nodes


def _gauss_legendre(g: Activation, p: Tensor, b: Tensor, nodes: int) -> Tensor:
    places, weights = np.polynomial.legendre.leggauss(nodes)
    total = torch.zeros_like(p)
    for place, weight in zip((places + 1) / 2, weights / 2, strict=True):
        total += weight * g(b + place * (p - b))
    return total


def gated_factors(
    g: Activation,
    u: Float[Tensor, "*axes"],
    v: Float[Tensor, "*axes"],
    u_start: Float[Tensor, "*axes"] | None = None,
    v_start: Float[Tensor, "*axes"] | None = None,
) -> tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]]:
    """The factors A, B of integrated gradients of g(u) ⊙ v: part j gets A u_j + B v_j.

    Along the straight path for both, from zero or from a start: A is the mean of g'(u(t)) v(t), B
    that of g(u(t)). With s = u − u_start, d = v − v_start and M = ∫ g(u(t)) dt, integration by parts
    gives A = (g(u) v − g(u_start) v_start − d M) / s, so that A s + B d is the whole change whatever
    the error of M: every split is complete.
    """
    u0 = torch.zeros_like(u) if u_start is None else u_start
    v0 = torch.zeros_like(v) if v_start is None else v_start
    wide = [x.double() for x in (u, v, u0, v0)]
    wide_u, wide_v, wide_u0, wide_v0 = wide
    mean = mean_along_path(g, wide_u, wide_u0)
    s, d = wide_u - wide_u0, wide_v - wide_v0
    near = _near(s, u_start)
    change = g(wide_u) * wide_v - g(wide_u0) * wide_v0 - d * mean
    a = change / torch.where(near, torch.ones_like(s), s)
    a[near] = slope(g, (wide_u + wide_u0)[near] / 2) * (wide_v + wide_v0)[near] / 2
    return a.to(u.dtype), mean.to(u.dtype)

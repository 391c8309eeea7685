"""How activations divide what they pass on: closed forms, and integrals by dense quadrature."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, relu, silu
from transformers.activations import ACT2FN

from prosect.engines.activation import gated_factors, mean_along_path, ratio
from support import plain

POINTS = torch.tensor(
    [
        -30.0,
        -3.0,
        -0.7,
        -1e-3,
        -1e-6,
        -1e-12,
        -1e-300,
        0.0,
        1e-300,
        1e-12,
        1e-6,
        1e-3,
        0.7,
        3.0,
        30.0,
    ],
    dtype=torch.float64,
)

FACTORS = {
    "gelu": lambda p: 0.5 * (1 + torch.erf(p / sqrt(2))),
    "gelu_new": lambda p: 0.5 * (1 + torch.tanh(sqrt(2 / torch.pi) * (p + 0.044715 * p**3))),
    "gelu_pytorch_tanh": lambda p: FACTORS["gelu_new"](p),
    "silu": torch.sigmoid,
    "relu": lambda p: (p > 0).to(p),
    "quick_gelu": lambda p: torch.sigmoid(1.702 * p),
}
"""g(p)/p, as everybody knows it."""
SMOOTH = [name for name in FACTORS if name != "relu"]


@pytest.mark.parametrize("name", FACTORS)
def test_from_zero_the_ratio_is_the_closed_form(name: str) -> None:
    torch.testing.assert_close(
        ratio(ACT2FN[name], POINTS), FACTORS[name](POINTS), rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("name", FACTORS)
def test_in_float32_the_ratio_is_as_good_as_its_argument(name: str) -> None:
    points = POINTS.float()
    found = ratio(ACT2FN[name], points)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, FACTORS[name](points.double()).float(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", FACTORS)
def test_zero_as_a_start_is_the_same_as_no_start(name: str) -> None:
    points = POINTS if name in SMOOTH else POINTS[POINTS.abs() > 1e-5]
    torch.testing.assert_close(
        ratio(ACT2FN[name], points, torch.zeros_like(points)),
        ratio(ACT2FN[name], points),
        rtol=0,
        atol=1e-9,
    )


@pytest.mark.parametrize("gap", [0.0, 1e-12, 1e-9, 1e-7, 2e-6, 1e-4, 0.3, 5.0])
@pytest.mark.parametrize("name", SMOOTH)
def test_the_ratio_is_the_mean_slope_of_the_path(name: str, gap: float) -> None:
    start = torch.linspace(-6, 6, 41, dtype=torch.float64)
    p = start + gap
    expected = plain.along_path(
        lambda t: plain.slope(plain.ACTIVATIONS[name], start + t * (p - start)), nodes=60
    )
    torch.testing.assert_close(ratio(ACT2FN[name], p, start), expected, rtol=0, atol=2e-9)


@pytest.mark.parametrize("name", FACTORS)
def test_the_ratio_carries_the_whole_change(name: str) -> None:
    g = ACT2FN[name]
    torch.manual_seed(0)
    p, start = 5 * torch.randn(2, 4000, dtype=torch.float64)
    start[:100] = p[:100] + 1e-8
    torch.testing.assert_close(
        ratio(g, p, start) * (p - start), g(p) - g(start), rtol=0, atol=1e-13
    )
    torch.testing.assert_close(ratio(g, p) * p, g(p), rtol=1e-14, atol=1e-14)


def test_the_ratio_is_found_where_gradients_are_off() -> None:
    with torch.inference_mode():
        assert float(ratio(gelu, torch.zeros(1))) == pytest.approx(0.5)
    with torch.no_grad():
        assert not ratio(gelu, torch.zeros(1, requires_grad=True)).requires_grad


# --- integrals along paths ------------------------------------------------------------------------


def _mean(name: str, p: Tensor, start: Tensor, pieces: int = 200) -> Tensor:
    """∫₀¹ g(start + t (p − start)) dt by 40 nodes in each of many pieces."""
    edges = [k / pieces for k in range(pieces)]
    g = plain.ACTIVATIONS[name]
    return sum(
        (
            plain.along_path(lambda t, e=e: g(start + (e + t / pieces) * (p - start)), 40) / pieces
            for e in edges
        ),
        torch.zeros(()),
    )


@pytest.mark.parametrize("far", [1.0, 30.0, 200.0])
@pytest.mark.parametrize("name", SMOOTH)
def test_the_mean_along_a_path_from_zero_equals_dense_quadrature(name: str, far: float) -> None:
    p = far * torch.linspace(-1, 1, 21, dtype=torch.float64)
    start = torch.zeros_like(p)
    expected = _mean(name, p, start)
    assert plain.gap(mean_along_path(ACT2FN[name], p), expected) < 1e-6


@pytest.mark.parametrize("name", SMOOTH)
def test_the_mean_along_a_path_across_zero_equals_dense_quadrature(name: str) -> None:
    start = torch.linspace(-8, 8, 17, dtype=torch.float64)
    for p in (start.flip(0), start + 3, 12 - start):
        expected = _mean(name, p, start)
        assert plain.gap(mean_along_path(ACT2FN[name], p, start), expected) < 1e-6


def test_at_a_kink_or_a_long_way_across_zero_the_mean_is_good_to_a_ten_thousandth() -> None:
    """128 nodes are the most: what is a step to them costs accuracy, never completeness."""
    start = torch.linspace(-8, -1, 15, dtype=torch.float64)
    for p in (start.flip(0).neg(), start + 11.3):
        half = p * p.clamp_min(0) / (2 * (p - start))  # ∫ max(0, ·) along the path
        assert plain.gap(mean_along_path(relu, p, start), half) < 1e-4
    for name in SMOOTH:
        p, start = torch.tensor([[200.0], [-200.0]], dtype=torch.float64)
        assert plain.gap(mean_along_path(ACT2FN[name], p, start), _mean(name, p, start)) < 1e-4


def test_more_nodes_are_taken_until_the_mean_stays() -> None:
    p = torch.tensor([60.0, -60.0], dtype=torch.float64)
    counts = []

    def counted(x: Tensor) -> Tensor:
        counts.append(1)
        return silu(x)

    mean_along_path(counted, p, tolerance=1e-2)
    few = len(counts)
    counts.clear()
    mean_along_path(counted, p, tolerance=1e-12)
    assert few < len(counts) <= 8 + 16 + 32 + 64 + 128


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("name", FACTORS)
def test_the_factors_of_a_gate_carry_the_whole_change(name: str, started: bool) -> None:
    """Whatever the quadrature's error: at kinks and far from zero too."""
    g = ACT2FN[name]
    torch.manual_seed(0)
    u, v, u0, v0 = 40 * torch.randn(4, 3000, dtype=torch.float64)
    u[:50] = 0.0
    u[50:100] = u0[50:100]
    u[100:150] = u0[100:150] + 1e-9
    starts = (u0, v0) if started else (None, None)
    if not started:
        u0, v0 = torch.zeros_like(u0), torch.zeros_like(v0)
    A, B = gated_factors(g, u, v, *starts)
    change = g(u) * v - g(u0) * v0
    torch.testing.assert_close(A * (u - u0) + B * (v - v0), change, rtol=1e-12, atol=1e-6 * 1e-5)


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("name", SMOOTH)
def test_the_factors_of_a_gate_are_means_along_the_path(name: str, started: bool) -> None:
    """A = ∫ g'(u(t)) v(t) dt, B = ∫ g(u(t)) dt."""
    g = plain.ACTIVATIONS[name]
    torch.manual_seed(0)
    u, v, u0, v0 = 3 * torch.randn(4, 500, dtype=torch.float64)
    u[:5], u[5:10], u[10:15] = 0.0, 1e-9, u0[10:15]
    starts = (u0, v0) if started else (None, None)
    if not started:
        u0, v0 = torch.zeros_like(u0), torch.zeros_like(v0)
    A, B = gated_factors(ACT2FN[name], u, v, *starts)
    expected = plain.along_path(lambda t: plain.slope(g, u0 + t * (u - u0)) * (v0 + t * (v - v0)))
    assert plain.gap(A, expected) < 1e-6
    assert plain.gap(B, plain.along_path(lambda t: g(u0 + t * (u - u0)))) < 1e-6

"""Learned maps back to the input embeddings."""

from __future__ import annotations

import pytest
import torch

from prosect.engines.learned import lost, ridge, trained


def linear_data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(300, 6, generator=generator, dtype=torch.float64)
    weight = torch.randn(6, 4, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return x, x @ weight + 0.5


def test_ridge_finds_a_linear_map_in_closed_form() -> None:
    x, y = linear_data()
    x_valid, y_valid = linear_data(1)
    g = ridge(x, y, x_valid, lambda guess: lost(guess, y_valid, "l2"))
    with torch.no_grad():
        assert float(lost(g(x_valid), y_valid, "l2")) < 1e-8


@pytest.mark.parametrize("loss", ["cosine", "l2"])
@pytest.mark.parametrize("shape", ["linear", "mlp"])
def test_training_comes_near_and_is_repeatable(shape: str, loss: str) -> None:
    x, y = linear_data()
    x_valid, y_valid = linear_data(1)
    options = {"seed": 3, "epochs": 60, "patience": 10, "rate": 1e-2, "batch": 64}

    def fit() -> torch.Tensor:
        g = trained(shape, x, y, x_valid, y_valid, loss, **options)
        with torch.no_grad():
            return g(x_valid)

    first = fit()
    assert torch.equal(first, fit())
    untrained = lost(torch.zeros_like(y_valid) + 1e-3, y_valid, loss)
    assert float(lost(first, y_valid, loss)) < 0.2 * float(untrained)


def test_training_stops_when_it_brings_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every epoch is a little better than the last, and only those of a hundredth count."""
    calls = []
    losses = [1.0, 0.5, *(0.499 - 1e-4 * i for i in range(100))]

    def told(guess: torch.Tensor, wanted: torch.Tensor, loss: str) -> torch.Tensor:
        if guess.requires_grad:
            return (guess - wanted).square().mean()
        calls.append(loss)
        return torch.tensor(losses[len(calls) - 1])

    monkeypatch.setattr("prosect.engines.learned.lost", told)
    x, y = linear_data()
    options = {"seed": 0, "epochs": 100, "rate": 1e-2, "batch": 300}
    g = trained("linear", x, y, x, y, "l2", patience=4, **options)
    assert len(calls) == 2 + 4
    again = trained("linear", x, y, x, y, "l2", patience=100, **{**options, "epochs": 6})
    # the last epoch was the best, though it did not count
    assert torch.equal(g(x), again(x))


def test_the_losses_follow_their_definitions() -> None:
    a, b = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    assert float(lost(a, b, "cosine")) == pytest.approx(0.5)
    assert float(lost(a, b, "l2")) == pytest.approx(2.0)

"""Learned maps g from hidden vectors to input embeddings (Brunner et al. 2020, section 3).

g is linear or has one hidden layer. It is fitted on training sentences, selected on validation
sentences and evaluated on test sentences.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

Shape = Literal["ridge", "linear", "mlp"]
Loss = Literal["cosine", "l2"]
PENALTIES = (1e-3, 1e-1, 1e1, 1e3)
"""The ridge penalties tried, in units of the mean squared length of a dimension."""
PROGRESS = 0.01
"""The relative decrease of the validation loss that counts as progress."""


def ridge(
    x: Float[Tensor, "token d"],
    y: Float[Tensor, "token d"],
    x_valid: Float[Tensor, "token d"],
    loss: Callable[[Tensor], Tensor],
) -> nn.Module:
    """The closed form: W = (XᵀX + λI)⁻¹ XᵀY on centred data, λ by the loss of the validation set."""
    x_mean, y_mean = x.double().mean(0), y.double().mean(0)
    centred, wanted = x.double() - x_mean, y.double() - y_mean
    gram, cross = centred.T @ centred, centred.T @ wanted
    unit = gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    fitted: list[tuple[float, nn.Module]] = []
    for penalty in PENALTIES:
        weight = torch.linalg.solve(gram + penalty / len(x) * unit, cross)
        linear = nn.Linear(x.shape[1], y.shape[1]).to(x)
        with torch.no_grad():
            linear.weight.copy_(weight.T)
            linear.bias.copy_(y_mean - x_mean @ weight)
            fitted.append((float(loss(linear(x_valid))), linear))
    return min(fitted, key=lambda pair: pair[0])[1]


def trained(
    shape: Shape,
    x: Float[Tensor, "token d"],
    y: Float[Tensor, "token d"],
    x_valid: Float[Tensor, "token d"],
    y_valid: Float[Tensor, "token d"],
    loss: Loss,
    *,
    seed: int,
    epochs: int,
    patience: int,
    rate: float,
    batch: int,
) -> nn.Module:
    """Fit by Adam; the weights of the epoch that does best on the validation set are kept.

    Hundreds of epochs go on gaining a thousandth each, which recovers no more tokens: an epoch is
    progress only if the validation loss is below the last progress by a share ``PROGRESS``.

    Parameters
    ----------
    shape
        "ridge": the closed form. "linear": one linear layer. "mlp": one hidden layer as wide as the
        vectors, ReLU.
    x, y
        Hidden vectors and the input embeddings they come from.
    x_valid, y_valid
        The same for the validation set.
    loss
        1 − cos, or the mean squared difference.
    seed, epochs, patience, rate, batch
        Of the training; it stops after ``patience`` epochs without progress.
    """
    if shape == "ridge":
        return ridge(x, y, x_valid, lambda guess: lost(guess, y_valid, loss))
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        d, out = x.shape[1], y.shape[1]
        layers = (
            [nn.Linear(d, out)]
            if shape == "linear"
            else [
                nn.Linear(d, d),
                nn.ReLU(),
                nn.Linear(d, out),
            ]
        )
        g = nn.Sequential(*layers).to(x)
    optimizer = torch.optim.Adam(g.parameters(), lr=rate, fused=True)
    best, least, reached, waited = copy.deepcopy(g), torch.inf, torch.inf, 0
    for _ in range(epochs):
        for chosen in torch.randperm(len(x), generator=generator).split(batch):
            optimizer.zero_grad()
            lost(g(x[chosen]), y[chosen], loss).backward()
            optimizer.step()
        with torch.no_grad():
            now = float(lost(g(x_valid), y_valid, loss))
        if now < least:
            best, least = copy.deepcopy(g), now
        if now < (1 - PROGRESS) * reached:
            reached, waited = now, 0
        else:
            waited += 1
            if waited == patience:
                break
    return best


def lost(
    guess: Float[Tensor, "token d"], wanted: Float[Tensor, "token d"], loss: Loss
) -> Float[Tensor, ""]:
    """The mean loss over tokens."""
    if loss == "cosine":
        return (1 - torch.cosine_similarity(guess, wanted, dim=-1)).mean()
    return (guess - wanted).square().mean()

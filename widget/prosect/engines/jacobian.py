"""Hidden Token Attribution (Brunner et al. 2020, section 5): how much each input token moves a vector.

c_ij = |∂e_j/∂x_i|_F / Σ_k |∂e_j/∂x_k|_F, with the Frobenius norm of the whole Jacobian block. In
forward mode, a change of one source token is pushed through the model once and gives all layers and
all targets. Exact with one tangent per dimension of the source. Estimated with random signs u, since
E|J u|² = |J|_F².
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Progress = Callable[[int], object]
"""Called with the number of tangents that were completed."""
Carry = Callable[[Float[Tensor, "tangent token d"]], Iterable[Float[Tensor, "tangent token d"]]]
"""From changes of the input tokens to the changes of each observed vector, layer by layer."""


@dataclass(frozen=True)
class Squares:
    """Squared norms of Jacobian blocks, |∂e_j/∂x_i|_F², and the variance of their estimates.

    Attributes
    ----------
    values
        [observed, target, source].
    variance
        The same, of the estimate; zero where the values are exact.
    """

    values: Float[Tensor, "observed target source"]
    variance: Float[Tensor, "observed target source"]


def exact(
    x: Float[Tensor, "token d"], carry: Carry, observed: int, batch: int, progress: Progress
) -> Squares:
    """Every dimension of every source token, ``batch`` tangents at a time.

    Parameters
    ----------
    x
        The vectors that change.
    carry
        What their changes lead to, ``observed`` times.
    """
    n, d = x.shape
    values = x.new_zeros(observed, n, n, dtype=torch.float64)
    for source in range(n):
        for first in range(0, d, batch):
            size = min(batch, d - first)
            dx = x.new_zeros(size, n, d)
            dx[range(size), source, range(first, first + size)] = 1.0
            for index, moved in enumerate(carry(dx)):
                values[index, :, source] += moved.square().sum((0, 2)).double()
            progress(size)
    return Squares(values, torch.zeros_like(values))


def estimated(
    x: Float[Tensor, "token d"],
    carry: Carry,
    observed: int,
    batch: int,
    progress: Progress,
    probes: int,
    generator: torch.Generator,
) -> Squares:
    """The mean of |J u|² over random signs u, and the variance of that mean."""
    n, d = x.shape
    samples = x.new_zeros(observed, probes, n, n, dtype=torch.float64)
    pairs = [(source, probe) for source in range(n) for probe in range(probes)]
    for first in range(0, len(pairs), batch):
        chosen = pairs[first : first + batch]
        sources, probe = ([pair[i] for pair in chosen] for i in range(2))
        signs = torch.randint(0, 2, (len(chosen), d), generator=generator) * 2 - 1
        dx = x.new_zeros(len(chosen), n, d)
        dx[range(len(chosen)), sources] = signs.to(dx)
        for index, moved in enumerate(carry(dx)):
            samples[index, probe, :, sources] = moved.square().sum(-1).double()
        progress(len(chosen))
    return Squares(samples.mean(1), samples.var(1) / probes)


def along_input(
    x: Float[Tensor, "token d"], carry: Carry, observed: int, batch: int, progress: Progress
) -> Squares:
    """|∂e_j/∂x_i x_i|²: the change along the input itself, so that its size counts."""
    n, d = x.shape
    values = x.new_zeros(observed, n, n, dtype=torch.float64)
    for first in range(0, n, batch):
        chosen = list(range(first, min(first + batch, n)))
        dx = x.new_zeros(len(chosen), n, d)
        dx[range(len(chosen)), chosen] = x[chosen]
        for index, moved in enumerate(carry(dx)):
            values[index, :, chosen] = moved.square().sum(-1).T.double()
        progress(len(chosen))
    return Squares(values, torch.zeros_like(values))


def shares(
    squares: Squares,
) -> tuple[Float[Tensor, "state target source"], Float[Tensor, "state target source"]]:
    """Each source's share of the norms of its target, and its standard error to first order."""
    norms = squares.values.sqrt()
    tiny = torch.finfo(norms.dtype).tiny  # what nothing moves has shares of 0
    total = norms.sum(-1, keepdim=True).clamp_min(tiny)
    share = norms / total
    # var √m = var m / 4m; of the ratio, the numerator is part of the denominator
    spread = squares.variance / (4 * squares.values).clamp_min(tiny)
    others = spread.sum(-1, keepdim=True) - spread
    variance = (1 - share).square() * spread + share.square() * others
    return share, variance.sqrt() / total

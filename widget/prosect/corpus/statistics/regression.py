"""Least squares regression from cross-products that are summed over many texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prosect.corpus.statistics.moments import CrossProducts

RELATIVE_RANK_TOLERANCE = 1e-10
"""Eigenvalues of the input correlations below this fraction of the largest count as zero.

The output of a LayerNorm lies in a subspace, and float32 leaves variances around 1e-14 outside it.
"""
CONSTANT = 1e-6
"""A dimension is constant if its spread is below this fraction of its root mean square."""


@dataclass(frozen=True)
class LinearMap:
    """y ≈ mean y + (x − mean x) W, in each layer.

    Attributes
    ----------
    count
        The number of pairs it was fitted to.
    mean_x, mean_y
        [layer, p] and [layer, q].
    weight
        [layer, p, q], W.
    rank
        [layer], the rank of the inputs.
    """

    count: float
    mean_x: np.ndarray
    mean_y: np.ndarray
    weight: np.ndarray
    rank: np.ndarray

    @classmethod
    def fit(cls, cross: CrossProducts) -> LinearMap:
        """Fit by ordinary least squares.

        Where several W are equally good, the one of least norm for standardised x is chosen.
        """
        fits = [
            _least_squares(*layer)
            for layer in zip(cross.xx, cross.xy, _input_scales(cross), strict=True)
        ]
        weight, rank = (np.stack(values) for values in zip(*fits, strict=True))
        return cls(cross.count, cross.mean_x, cross.mean_y, weight, rank)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Predict [layer, n, q] from inputs [layer, n, p]."""
        return (x - self.mean_x[:, None]) @ self.weight + self.mean_y[:, None]

    def r_squared(self, cross: CrossProducts) -> np.ndarray:
        """[layer, q], R² = 1 − Σ (y − prediction)² / Σ (y − mean y)² on any pairs.

        NaN for constant dimensions and for maps that were fitted to no pairs.
        """
        weight = self.weight
        gap = cross.mean_y - self.mean_y
        gap -= ((cross.mean_x - self.mean_x)[:, None] @ weight)[:, 0]
        squares = weight * (cross.xx @ weight - 2 * cross.xy)
        residual = cross.yy + squares.sum(1) + cross.count * np.square(gap)
        defined = _varies(cross.yy, cross.mean_y, cross.count) & (self.count > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(defined, 1 - residual / cross.yy, np.nan)


def _varies(squares: np.ndarray, mean: np.ndarray, count: float) -> np.ndarray:
    return squares > CONSTANT**2 * (squares + count * np.square(mean))


def _input_scales(cross: CrossProducts) -> np.ndarray:
    """[layer, p], the inverse root of the sum of squares of each input; 0 for a constant input."""
    squares = np.diagonal(cross.xx, axis1=1, axis2=2)
    varies = _varies(squares, cross.mean_x, cross.count)
    return np.where(varies, 1 / np.sqrt(np.where(varies, squares, 1)), 0)


def _least_squares(xx: np.ndarray, xy: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, int]:
    """W = S (S xx S)⁺ S xy with S = diag(scale), and the rank of S xx S, the input correlations."""
    values, vectors = np.linalg.eigh(scale[:, None] * xx * scale)
    kept = values > RELATIVE_RANK_TOLERANCE * max(values[-1], 0)
    basis = vectors[:, kept] * scale[:, None]
    return basis @ ((basis.T @ xy) / values[kept, None]), int(kept.sum())

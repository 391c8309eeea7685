"""The linear map that comes closest to a non-linear one, from sums over many texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prosect.corpus.statistics.moments import Cross

DEPENDENT = 1e-10
"""Directions of standardised inputs with less of the largest variance than this are none.

What follows a LayerNorm lies in a subspace, and there float32 leaves variances around 1e-14.
"""
CONSTANT = 1e-6
"""A dimension whose spread is less of its root mean square than this does not vary."""


@dataclass(frozen=True)
class LinearMap:
    """y ≈ mean y + (x − mean x) W, in each layer.

    Attributes
    ----------
    count
        Of how many pairs.
    mean_x, mean_y
        [layer, p] and [layer, q].
    weight
        [layer, p, q], W.
    rank
        [layer], in how many directions the inputs vary.
    """

    count: float
    mean_x: np.ndarray
    mean_y: np.ndarray
    weight: np.ndarray
    rank: np.ndarray

    @classmethod
    def fit(cls, cross: Cross) -> LinearMap:
        """Ordinary least squares; the shortest W for standardised x where several are as good."""
        fitted = [
            _least_squares(*layer) for layer in zip(cross.xx, cross.xy, _scales(cross), strict=True)
        ]
        weight, rank = (np.stack(found) for found in zip(*fitted, strict=True))
        return cls(cross.count, cross.mean_x, cross.mean_y, weight, rank)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The predictions [layer, n, q] for inputs [layer, n, p]."""
        return (x - self.mean_x[:, None]) @ self.weight + self.mean_y[:, None]

    def explained(self, cross: Cross) -> np.ndarray:
        """R² of each dimension, [layer, q], on any pairs: 1 − Σ (y − prediction)² / Σ (y − mean y)².

        NaN for dimensions that do not vary, and for maps of no pairs.
        """
        across = self.weight
        gap = cross.mean_y - self.mean_y
        gap -= ((cross.mean_x - self.mean_x)[:, None] @ across)[:, 0]
        squares = across * (cross.xx @ across - 2 * cross.xy)
        left = cross.yy + squares.sum(1) + cross.count * np.square(gap)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(varying(cross) & (self.count > 0), 1 - left / cross.yy, np.nan)


def varying(cross: Cross) -> np.ndarray:
    """Which dimensions of the outputs vary, [layer, q]."""
    return _varies(cross.yy, cross.mean_y, cross.count)


def _varies(squares: np.ndarray, mean: np.ndarray, count: float) -> np.ndarray:
    return squares > CONSTANT**2 * (squares + count * np.square(mean))


def _scales(cross: Cross) -> np.ndarray:
    """One over the root of each input's squares, [layer, p]; 0 where it does not vary."""
    squares = np.diagonal(cross.xx, axis1=1, axis2=2)
    varies = _varies(squares, cross.mean_x, cross.count)
    return np.where(varies, 1 / np.sqrt(np.where(varies, squares, 1)), 0)


def _least_squares(xx: np.ndarray, xy: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, int]:
    """W = S (S xx S)⁺ S xy, with S the scales, and the rank of S xx S (the inputs' correlations)."""
    values, vectors = np.linalg.eigh(scale[:, None] * xx * scale)
    kept = values > DEPENDENT * max(values[-1], 0)
    basis = vectors[:, kept] * scale[:, None]
    return basis @ ((basis.T @ xy) / values[kept, None]), int(kept.sum())

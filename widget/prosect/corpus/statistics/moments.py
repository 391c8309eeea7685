"""Sufficient statistics of a shard, which merge to the same result however the work is cut."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

Arrays = dict[str, np.ndarray]
"""The result of a shard: arrays by name."""


@dataclass(frozen=True)
class Moments:
    """Count, mean and squared deviations of vectors, in float64.

    Attributes
    ----------
    count
        The number of vectors.
    mean
        [...], their mean.
    squares
        [...], the sum of squared deviations from the mean.
    """

    count: float
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """Compute the moments of values [n, ...]."""
        values = values.astype(np.float64, copy=False)
        mean = values.sum(0) / max(1, len(values))  # zero for n = 0, so that merging is neutral
        return cls(float(len(values)), mean, np.square(values - mean).sum(0))

    def merge(self, other: Moments) -> Moments:
        """Compute the moments of both samples together (Chan, Golub and LeVeque 1979)."""
        count = self.count + other.count
        fraction = other.count / max(1.0, count)
        gap = other.mean - self.mean
        return Moments(
            count,
            self.mean + gap * fraction,
            self.squares + other.squares + np.square(gap) * (self.count * fraction),
        )

    @property
    def spread(self) -> np.ndarray:
        """[...], the standard deviation; NaN for fewer than two vectors."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.sqrt(self.squares / max(0.0, self.count - 1))

    def pack(self, name: str) -> Arrays:
        """Return arrays whose names begin with ``name``."""
        return {
            f"{name}/count": np.asarray(self.count),
            f"{name}/mean": self.mean,
            f"{name}/squares": self.squares,
        }

    @classmethod
    def unpack(cls, arrays: Arrays, name: str) -> Moments:
        """Invert :meth:`pack`."""
        count = float(arrays[f"{name}/count"])
        return cls(count, arrays[f"{name}/mean"], arrays[f"{name}/squares"])


@dataclass(frozen=True)
class ClusteredMean:
    """A mean over tokens whose standard error allows for correlation within a text.

    Texts are the independent draws. The mean is a ratio of two sums over texts, Σ s / Σ n, where s
    is the sum over the tokens of a text and n their number. The standard error of the ratio is
    sqrt(K/(K−1) Σ (s − R n)²) / Σ n (Cochran 1977, section 6).

    Attributes
    ----------
    texts
        K.
    count
        The mean of n.
    total
        [...], the mean of s.
    squares, products
        [...], the sums over texts of (s − mean s)² and (s − mean s)(n − mean n).
    counts
        The sum of (n − mean n)².
    """

    texts: np.ndarray
    count: np.ndarray
    total: np.ndarray
    squares: np.ndarray
    products: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, totals: np.ndarray, counts: np.ndarray) -> ClusteredMean:
        """Compute it from the sums [text, ...] and numbers of tokens [text] of each text."""
        totals, counts = totals.astype(np.float64), counts.astype(np.float64)
        total, count = totals.mean(0), counts.mean(0)
        total_deviation, count_deviation = totals - total, counts - count
        return cls(
            np.asarray(float(len(counts))),
            np.asarray(count),
            total,
            np.square(total_deviation).sum(0),
            np.tensordot(count_deviation, total_deviation, 1),
            np.asarray(np.square(count_deviation).sum()),
        )

    def merge(self, other: ClusteredMean) -> ClusteredMean:
        """Compute it for the texts of both samples."""
        texts = self.texts + other.texts
        weight = self.texts * other.texts / texts
        total_gap, count_gap = other.total - self.total, other.count - self.count
        merged = (
            texts,
            self.count + count_gap * (other.texts / texts),
            self.total + total_gap * (other.texts / texts),
            self.squares + other.squares + np.square(total_gap) * weight,
            self.products + other.products + total_gap * count_gap * weight,
            self.counts + other.counts + np.square(count_gap) * weight,
        )
        return ClusteredMean(*map(np.asarray, merged))

    @property
    def mean(self) -> np.ndarray:
        """[...], the mean over tokens; NaN without tokens."""
        with np.errstate(invalid="ignore"):
            return self.total / self.count

    @property
    def error(self) -> np.ndarray:
        """[...], the standard error of the mean; NaN for a single text."""
        ratio = self.mean
        residual = self.squares - 2 * ratio * self.products + np.square(ratio) * self.counts
        with np.errstate(divide="ignore", invalid="ignore"):
            correction = self.texts / (self.texts - 1)
            return np.sqrt(residual.clip(0) * correction) / (self.texts * self.count)

    def pack(self, name: str) -> Arrays:
        """Return arrays whose names begin with ``name``."""
        return {f"{name}/{f.name}": getattr(self, f.name) for f in fields(self)}

    @classmethod
    def unpack(cls, arrays: Arrays, name: str) -> ClusteredMean:
        """Invert :meth:`pack`."""
        return cls(*(arrays[f"{name}/{f.name}"] for f in fields(cls)))


@dataclass(frozen=True)
class CrossProducts:
    """Count, means and centred cross-products of pairs of vectors x and y, in float64.

    They suffice for the least squares regression of y on x. The memory is 8 (p² + p q) bytes for
    each layer, whatever the number of pairs.

    Attributes
    ----------
    count
        The number of pairs.
    mean_x, mean_y
        [layer, p] and [layer, q].
    xx, xy
        [layer, p, p] and [layer, p, q], the sums of (x − mean x)(x − mean x)ᵀ and of
        (x − mean x)(y − mean y)ᵀ.
    yy
        [layer, q], the sum of (y − mean y)² in each dimension.
    """

    count: float
    mean_x: np.ndarray
    mean_y: np.ndarray
    xx: np.ndarray
    xy: np.ndarray
    yy: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray) -> CrossProducts:
        """Compute them from x [layer, n, p] and y [layer, n, q]."""
        x, y = x.astype(np.float64, copy=False), y.astype(np.float64, copy=False)
        count = x.shape[1]
        mean_x, mean_y = (values.sum(1) / max(1, count) for values in (x, y))  # zero for n = 0
        dx, dy = x - mean_x[:, None], y - mean_y[:, None]
        dx_transposed = dx.transpose(0, 2, 1)
        return cls(
            float(count),
            mean_x,
            mean_y,
            dx_transposed @ dx,
            dx_transposed @ dy,
            np.square(dy).sum(1),
        )

    def merge(self, other: CrossProducts) -> CrossProducts:
        """Compute them for the pairs of both samples (Chan, Golub and LeVeque 1979)."""
        count = self.count + other.count
        fraction = other.count / max(1.0, count)
        weight = self.count * fraction
        gap_x, gap_y = other.mean_x - self.mean_x, other.mean_y - self.mean_y
        column = weight * gap_x[:, :, None]
        return CrossProducts(
            count,
            self.mean_x + gap_x * fraction,
            self.mean_y + gap_y * fraction,
            self.xx + other.xx + column * gap_x[:, None],
            self.xy + other.xy + column * gap_y[:, None],
            self.yy + other.yy + weight * np.square(gap_y),
        )

    def pack(self, name: str) -> Arrays:
        """Return arrays whose names begin with ``name``."""
        return {f"{name}/{f.name}": np.asarray(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def unpack(cls, arrays: Arrays, name: str) -> CrossProducts:
        """Invert :meth:`pack`."""
        count, *others = (arrays[f"{name}/{f.name}"] for f in fields(cls))
        return cls(float(count), *others)

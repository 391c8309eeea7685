"""Sufficient statistics: what is kept of a shard so that any cut of the work gives the same result."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

Arrays = dict[str, np.ndarray]
"""What a shard leaves: numbers by name."""


@dataclass(frozen=True)
class Moments:
    """Count, mean and squared deviations of vectors, in float64.

    Attributes
    ----------
    count
        How many vectors there were.
    mean
        [...], their mean.
    squares
        [...], the sum of squared deviations from it.
    """

    count: float
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """The moments of values [n, ...]."""
        values = values.astype(np.float64, copy=False)
        mean = values.sum(0) / max(1, len(values))  # of none: zero, which merges as nothing
        return cls(float(len(values)), mean, np.square(values - mean).sum(0))

    def merge(self, other: Moments) -> Moments:
        """The moments of both together (Chan, Golub and LeVeque 1979)."""
        count = self.count + other.count
        share = other.count / max(1.0, count)
        gap = other.mean - self.mean
        return Moments(
            count,
            self.mean + gap * share,
            self.squares + other.squares + np.square(gap) * (self.count * share),
        )

    @property
    def spread(self) -> np.ndarray:
        """[...], the standard deviation; NaN of a single vector."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.sqrt(self.squares / (self.count - 1))

    def packed(self, name: str) -> Arrays:
        """As arrays whose names begin with ``name``."""
        return {
            f"{name}/count": np.asarray(self.count),
            f"{name}/mean": self.mean,
            f"{name}/squares": self.squares,
        }

    @classmethod
    def unpacked(cls, arrays: Arrays, name: str) -> Moments:
        """The reverse of :meth:`packed`."""
        count = float(arrays[f"{name}/count"])
        return cls(count, arrays[f"{name}/mean"], arrays[f"{name}/squares"])


@dataclass(frozen=True)
class Clustered:
    """A mean over tokens whose uncertainty knows that the tokens of a text resemble each other.

    The texts are the independent draws: the mean is a ratio of two sums over texts, Σ s / Σ n, with
    s the sum over a text's tokens and n their number. Its standard error is that of the ratio,
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
    def of(cls, totals: np.ndarray, counts: np.ndarray) -> Clustered:
        """Of each text's sums [text, ...] and numbers of tokens [text]."""
        totals, counts = totals.astype(np.float64), counts.astype(np.float64)
        total, count = totals.mean(0), counts.mean(0)
        away, apart = totals - total, counts - count
        return cls(
            np.asarray(float(len(counts))),
            np.asarray(count),
            total,
            np.square(away).sum(0),
            np.tensordot(apart, away, 1),
            np.asarray(np.square(apart).sum()),
        )

    def merge(self, other: Clustered) -> Clustered:
        """Of the texts of both."""
        texts = self.texts + other.texts
        weight = self.texts * other.texts / texts
        gap, step = other.total - self.total, other.count - self.count
        merged = (
            texts,
            self.count + step * (other.texts / texts),
            self.total + gap * (other.texts / texts),
            self.squares + other.squares + np.square(gap) * weight,
            self.products + other.products + gap * step * weight,
            self.counts + other.counts + np.square(step) * weight,
        )
        return Clustered(*map(np.asarray, merged))

    @property
    def mean(self) -> np.ndarray:
        """[...], over tokens."""
        return self.total / self.count

    @property
    def error(self) -> np.ndarray:
        """[...], the standard error of the mean; NaN for a single text."""
        ratio = self.mean
        left = self.squares - 2 * ratio * self.products + np.square(ratio) * self.counts
        with np.errstate(divide="ignore", invalid="ignore"):
            share = self.texts / (self.texts - 1)
            return np.sqrt(left.clip(0) * share) / (self.texts * self.count)

    def packed(self, name: str) -> Arrays:
        """As arrays whose names begin with ``name``."""
        return {f"{name}/{f.name}": getattr(self, f.name) for f in fields(self)}

    @classmethod
    def unpacked(cls, arrays: Arrays, name: str) -> Clustered:
        """The reverse of :meth:`packed`."""
        return cls(*(arrays[f"{name}/{f.name}"] for f in fields(cls)))

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
        """[...], the standard deviation; NaN of fewer than two vectors."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.sqrt(self.squares / max(0.0, self.count - 1))

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
        """[...], over tokens; NaN of none."""
        with np.errstate(invalid="ignore"):
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


@dataclass(frozen=True)
class Cross:
    """Count, means and centred cross-products of pairs of vectors x and y, in float64.

    Enough for the least squares of y on x. It takes 8 (p² + p q) bytes a layer however many pairs.

    Attributes
    ----------
    count
        How many pairs there were.
    mean_x, mean_y
        [layer, p] and [layer, q].
    xx, xy
        [layer, p, p] and [layer, p, q]: the sums of (x − mean x)(x − mean x)ᵀ, and of those with y.
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
    def of(cls, x: np.ndarray, y: np.ndarray) -> Cross:
        """Of x [layer, n, p] and y [layer, n, q]."""
        x, y = x.astype(np.float64, copy=False), y.astype(np.float64, copy=False)
        count = x.shape[1]
        mean_x, mean_y = (values.sum(1) / max(1, count) for values in (x, y))  # of none: zero
        dx, dy = x - mean_x[:, None], y - mean_y[:, None]
        across = dx.transpose(0, 2, 1)
        return cls(float(count), mean_x, mean_y, across @ dx, across @ dy, np.square(dy).sum(1))

    def merge(self, other: Cross) -> Cross:
        """Of the pairs of both together (Chan, Golub and LeVeque 1979)."""
        count = self.count + other.count
        share = other.count / max(1.0, count)
        weight = self.count * share
        gap_x, gap_y = other.mean_x - self.mean_x, other.mean_y - self.mean_y
        column = weight * gap_x[:, :, None]
        return Cross(
            count,
            self.mean_x + gap_x * share,
            self.mean_y + gap_y * share,
            self.xx + other.xx + column * gap_x[:, None],
            self.xy + other.xy + column * gap_y[:, None],
            self.yy + other.yy + weight * np.square(gap_y),
        )

    def packed(self, name: str) -> Arrays:
        """As arrays whose names begin with ``name``."""
        return {f"{name}/{f.name}": np.asarray(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def unpacked(cls, arrays: Arrays, name: str) -> Cross:
        """The reverse of :meth:`packed`."""
        count, *others = (arrays[f"{name}/{f.name}"] for f in fields(cls))
        return cls(float(count), *others)


def largest(sizes: np.ndarray, k: int) -> np.ndarray:
    """Where the k largest of each row are, largest first and equal ones in order: [row, k].

    The k largest of what the k largest of some parts leave are the k largest of all.
    """
    return np.stack([_largest(row, min(k, sizes.shape[1])) for row in sizes])


def _largest(row: np.ndarray, k: int) -> np.ndarray:
    if k == 0:
        return np.zeros(0, np.intp)
    least = np.partition(row, len(row) - k)[len(row) - k]
    reach = np.flatnonzero(row >= least)  # a few more than k where values are equal
    return reach[np.argsort(-row[reach], kind="stable")[:k]]


def once(sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The sizes [row, n] with −1 in the place of all but the first of the largest of each key."""
    kept = np.full_like(sizes, -1)
    for row, size, key in zip(kept, sizes, keys, strict=True):
        order = np.argsort(-size, kind="stable")
        first = order[np.unique(key[order], return_index=True)[1]]
        row[first] = size[first]
    return kept

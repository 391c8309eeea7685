"""What of an attention matrix could be otherwise: effective attention and its null space as results."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from prosect.anatomy.stream import Attended
from prosect.engines import effective, measures
from prosect.errors import ProsectError


@dataclass(frozen=True, eq=False, repr=False)
class Freedom:
    """How far the attention of every head is determined by what it does (Brunner et al. 2020).

    Attributes
    ----------
    tokens
        n, the length of the text.
    rank
        [layer, head], of T = V W_O, the value vectors as the head writes them.
    dimension
        [layer, head], n − rank(T): in how many directions a row of attention can be moved without
        any change of the output.
    dimension_with_sums
        [layer, head], n − rank([T, 1]): the same with the rows kept summing to one.
    """

    tokens: int
    rank: Int[Tensor, "layer head"]
    dimension: Int[Tensor, "layer head"]
    dimension_with_sums: Int[Tensor, "layer head"]

    @property
    def identifiable(self) -> Tensor:
        """[layer, head], whether nothing can be moved."""
        return self.dimension_with_sums == 0

    def __repr__(self) -> str:
        heads = self.identifiable
        return (
            f"Freedom({int(heads.sum())} of {heads.numel()} heads identifiable, n = {self.tokens})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Alternative:
    """Another attention matrix with the same output.

    Attributes
    ----------
    attention
        [target, source], non-negative, rows summing to one.
    furthest
        [target], the largest step along each row's direction that keeps it so; 0 where a row cannot
        move.
    error
        The certificate: max over targets of |A' T − A T| / |A T|.
    """

    attention: Float[Tensor, "target source"]
    furthest: Float[Tensor, "target"]
    error: float

    def __repr__(self) -> str:
        moved = int((self.furthest > 0).sum())
        return f"Alternative({moved} rows moved, output kept to {self.error:.1e})"


@dataclass(frozen=True, eq=False, repr=False)
class NullSpace:
    """The directions in which the attention of one head can be moved without changing its output.

    Attributes
    ----------
    layer, head
        From 0.
    rank
        Of T = V W_O, for the whole text.
    dimension
        n − rank([T, 1]), with rows kept summing to one.
    basis
        [source, dimension], orthonormal; in a causal model that of the last row, the others have
        the null space of their own prefix.
    """

    layer: int
    head: int
    rank: int
    basis: Float[Tensor, "source dimension"]
    causal: bool
    _alpha: Float[Tensor, "target source"]
    _t: Float[Tensor, "source d_head"]
    _tolerance: float

    @classmethod
    def of(
        cls, attended: Attended, layer: int, head: int, causal: bool, tolerance: float
    ) -> NullSpace:
        """The null space of one head of a run."""
        t = effective.coordinates(attended)[head]
        rank = int(effective.column_basis(t[None], tolerance)[1])
        basis = effective.null_basis(t, tolerance, keep_sums=True)
        alpha = attended.alpha[head].double()
        return cls(layer, head, rank, basis, causal, alpha, t, tolerance)

    @property
    def dimension(self) -> int:
        """How many directions there are."""
        return self.basis.shape[1]

    def __repr__(self) -> str:
        n = len(self._t)
        where = f"layer {self.layer}, head {self.head}"
        return f"NullSpace({where}: n {n}, rank {self.rank}, dimension {self.dimension})"

    def alternative(
        self,
        t: float = 1.0,
        *,
        seed: int = 0,
        direction: Float[Tensor, "dimension"] | None = None,
    ) -> Alternative:
        """Move every row along the null space as far as it stays a distribution.

        Parameters
        ----------
        t
            How far, as a share of the furthest: 0 is the attention itself, 1 as far as possible.
        seed
            Of the random direction of each row.
        direction
            Instead, coordinates in ``basis`` for all rows (not in causal models, where every row
            has its own null space).

        Raises
        ------
        ProsectError
            If t is not between 0 and 1, or the direction does not fit.
        """
        if not 0 <= t <= 1:
            raise ProsectError(f"t is a share between 0 and 1, not {t}.")
        if direction is not None and (self.causal or direction.shape != (self.dimension,)):
            raise ProsectError(
                "A causal model has a null space a row: choose a seed."
                if self.causal
                else f"direction has one number for each of the {self.dimension} dimensions."
            )
        generator = torch.Generator().manual_seed(seed)
        moved, steps = self._alpha.clone(), torch.zeros(len(self._alpha), dtype=torch.float64)
        for row in range(len(self._alpha)):
            seen = row + 1 if self.causal else len(self._alpha)
            basis = self.basis
            if self.causal and seen < len(self._alpha):
                basis = effective.null_basis(self._t[:seen], self._tolerance, keep_sums=True)
            if basis.shape[1] == 0:
                continue
            if direction is None:
                along = torch.randn(basis.shape[1], generator=generator, dtype=torch.float64)
            else:
                along = direction.double()
            delta = basis @ along.to(basis)
            step = effective.furthest(moved[row, :seen], delta)
            if step.isinf():  # no direction at all
                continue
            steps[row] = step
            moved[row, :seen] += t * step * delta
        moved = moved.clamp_min(0.0)
        before, after = self._alpha @ self._t, moved @ self._t
        size = before.norm(dim=-1).clamp_min(torch.finfo(before.dtype).tiny)
        gap = (after - before).norm(dim=-1) / size
        return Alternative(moved, steps, float(gap.max()))


@dataclass(frozen=True, eq=False, repr=False)
class EffectiveCorrelation:
    """How alike attention and effective attention are (Brunner et al. 2020, Fig. 2).

    Attributes
    ----------
    pearson, spearman
        [layer, head], of all entries of the two matrices.
    baseline
        Pearson's r of the same for random matrices of the same size: softmax of normal scores of
        standard deviation 2, normal value vectors.
    special_before, special_after
        [layer, head], the mean attention that goes to special tokens, in A and in A⊥.
    """

    pearson: Float[Tensor, "layer head"]
    spearman: Float[Tensor, "layer head"]
    baseline: float
    special_before: Float[Tensor, "layer head"]
    special_after: Float[Tensor, "layer head"]

    def __repr__(self) -> str:
        mean = float(self.pearson.mean())
        return f"EffectiveCorrelation(mean Pearson {mean:.3f}, random baseline {self.baseline:.3f})"


def correlate(
    attention: Float[Tensor, "layer head target source"],
    effective_: Float[Tensor, "layer head target source"],
    special: list[int],
    d_head: int,
    causal: bool,
    seed: int = 0,
) -> EffectiveCorrelation:
    """Compare attention with effective attention, head by head, beside a random baseline."""
    allowed = effective.allowed(attention.shape[-1], causal).to(attention.device)

    def each(measure) -> Tensor:
        return torch.tensor(
            [
                [measure(a[allowed], b[allowed]) for a, b in zip(x, y, strict=True)]
                for x, y in zip(attention, effective_, strict=True)
            ]
        )

    return EffectiveCorrelation(
        pearson=each(measures.pearson),
        spearman=each(lambda a, b: float(measures.spearman(a, b))),
        baseline=random_baseline(attention.shape[-1], d_head, causal, seed),
        special_before=attention[..., special].sum(-1).mean(-1),
        special_after=effective_[..., special].sum(-1).mean(-1),
    )


def random_baseline(n: int, d_head: int, causal: bool, seed: int = 0, heads: int = 4) -> float:
    """Pearson's r of A and A⊥ for random attention over random values; 1 where n ≤ d_head."""
    generator = torch.Generator().manual_seed(seed)
    scores = 2.0 * torch.randn(heads, n, n, generator=generator, dtype=torch.float64)
    allowed = effective.allowed(n, causal)
    alpha = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    values = torch.randn(heads, n, d_head, generator=generator, dtype=torch.float64)
    tolerance = effective.default_tolerance(n, d_head, torch.float64)
    found, _ = effective.effective_attention(alpha, values, tolerance, causal)
    pairs = zip(alpha, found, strict=True)
    return sum(measures.pearson(a[allowed], b[allowed]) for a, b in pairs) / heads

"""The identifiability of attention: effective attention and the null space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from prosect.analyses.cache import Analyses, Sizes
from prosect.analyses.maps import Options, Values, visible
from prosect.engines import effective, measures
from prosect.engines.records import AttentionRecord
from prosect.errors import ProsectError
from prosect.modes import in_plain_arithmetic
from prosect.validation import check_flag, check_share, whole_number


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class AttentionIdentifiability:
    """How far the attention of every head is determined by what it does (Brunner et al. 2020).

    Of the row of attention that sees most tokens, the last of them if there are several: all n
    tokens in an encoder, and of the last token in a causal model; within a sliding window of fewer,
    those in the last whole window.

    Attributes
    ----------
    tokens
        n, the length of the text.
    rank
        [layer, head], of T = V W_O, the value vectors that the row sees as the head writes them.
    dimension
        [layer, head], seen − rank(T): in how many directions the row can be moved without any change
        of the output.
    dimension_with_sums
        [layer, head], seen − rank([T, 1]): the same with the row kept summing to one.
    seen
        [layer], how many tokens the row sees.
    """

    tokens: int
    rank: Int[Tensor, "layer head"]
    dimension: Int[Tensor, "layer head"]
    dimension_with_sums: Int[Tensor, "layer head"]
    seen: Int[Tensor, "layer"]

    @property
    def identifiable(self) -> Tensor:
        """[layer, head], whether no row can be changed without changing the output."""
        return self.dimension_with_sums == 0

    def __repr__(self) -> str:
        heads = self.identifiable
        return (
            f"AttentionIdentifiability({int(heads.sum())} of {heads.numel()} heads identifiable, "
            f"n = {self.tokens})"
        )


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Alternative:
    """Another attention matrix with the same output.

    Attributes
    ----------
    attention
        [target, source], non-negative, rows summing to one.
    furthest
        [target], the length of the longest change of each row in its direction for which the row
        stays a distribution; 0 if the row cannot change.
    error
        The certificate: max over targets of |A' T − A T| / |A T|.
    """

    attention: Float[Tensor, "target source"]
    furthest: Float[Tensor, "target"]
    error: float

    def __repr__(self) -> str:
        moved = int((self.furthest > 0).sum())
        return f"Alternative({moved} rows moved, output kept to {self.error:.1e})"


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class NullSpace:
    """The directions in which the attention of one head can be moved without changing its output.

    Attributes
    ----------
    layer, head
        From 0.
    row
        Where rows see different tokens, in a causal model or within a sliding window, each has a null
        space of its own: rank, dimension and basis are those of this row, the last of those that see
        most tokens. Else those of every row.
    rank
        Of T = V W_O, for the tokens that the row sees; V without its bias, if it was asked for so.
    dimension
        Their number − rank([T, 1]), with rows kept summing to one.
    basis
        [source, dimension], orthonormal; zero where the row does not see.
    visible
        [target, source], which tokens each row sees; None: all.
    """

    layer: int
    head: int
    row: int
    rank: int
    basis: Float[Tensor, "source dimension"]
    visible: Bool[Tensor, "target source"] | None
    _alpha: Float[Tensor, "target source"]
    _t: Float[Tensor, "source d_head"]
    _tolerance: float

    @classmethod
    def of(
        cls,
        attended: AttentionRecord,
        layer: int,
        head: int,
        tolerance: float,
        value_bias: bool = True,
    ) -> NullSpace:
        """The null space of one head of a run."""
        t = effective.coordinates(attended, value_bias)[head]
        row, seen = effective.widest_row(len(t), attended.visible)
        rank = int(effective.column_basis(t[None, seen], tolerance)[1])
        own = effective.null_basis(t[seen], tolerance, keep_sums=True)
        basis = own.new_zeros(len(t), own.shape[1])
        basis[seen] = own
        alpha = attended.alpha[head].double()
        return cls(layer, head, row, rank, basis, attended.visible, alpha, t, tolerance)

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
        direction: Sequence[float] | Float[Tensor, "dimension"] | None = None,
    ) -> Alternative:
        """Move every row along the null space as far as it stays a distribution.

        Parameters
        ----------
        t
            The length of the change, as a share of the longest: 0 is the attention itself, 1 the
            longest change in the direction of the row. Other directions may allow longer ones.
        seed
            Of the random direction of each row.
        direction
            Instead of a seed, coordinates in ``basis`` for all rows (not in causal models and sliding
            windows, where every row has its own null space). Its length does not matter.

        Raises
        ------
        ProsectError
            If t is not between 0 and 1, the seed is not an integer, or the direction has a wrong
            length, is not finite or is given together with a seed.
        """
        check_share(t, "t")
        seed = whole_number(seed, "seed")
        if direction is not None and seed != 0:
            raise ProsectError("direction and seed cannot both be given: leave one of them out.")
        if direction is not None and self.visible is not None:
            raise ProsectError(
                "direction cannot be given where each row has its own null space (causal models, "
                "sliding windows): use seed."
            )
        given = None if direction is None else self._direction(direction)
        generator = torch.Generator().manual_seed(seed)
        moved, steps = self._alpha.clone(), torch.zeros(len(self._alpha), dtype=torch.float64)
        for row in range(len(self._alpha)):
            seen, basis = self._of_row(row)
            if basis.shape[1] == 0:
                continue
            along = given
            if along is None:
                along = torch.randn(basis.shape[1], generator=generator, dtype=torch.float64)
            delta = basis @ normalize(along.to(basis), dim=0)
            step = effective.largest_step(moved[row, seen], delta)
            if step.isinf():  # the direction is zero
                continue
            steps[row] = step
            moved[row, seen] += t * step * delta
        moved = moved.clamp_min(0.0)
        before, after = self._alpha @ self._t, moved @ self._t
        size = before.norm(dim=-1).clamp_min(torch.finfo(before.dtype).tiny)
        gap = (after - before).norm(dim=-1) / size
        return Alternative(moved, steps, float(gap.max()))

    def _direction(self, direction: object) -> Float[Tensor, "dimension"]:
        try:
            found = torch.as_tensor(direction, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError):
            raise ProsectError(f"direction must be a list of numbers, got {direction!r}.") from None
        if found.shape != (self.dimension,):
            raise ProsectError(
                f"direction must have {self.dimension} numbers, one per dimension, "
                f"got the shape {list(found.shape)}."
            )
        if not found.isfinite().all():
            raise ProsectError("direction must have finite numbers, got NaN or infinite ones.")
        return found

    def _of_row(self, row: int) -> tuple[Tensor | slice, Float[Tensor, "seen dimension"]]:
        """What a row sees and a basis of its null space there."""
        if self.visible is None:
            return slice(None), self.basis
        seen = self.visible[row].nonzero()[:, 0]
        if row == self.row:
            return seen, self.basis[seen]
        return seen, effective.null_basis(self._t[seen], self._tolerance, keep_sums=True)


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class EffectiveCorrelation:
    """How alike attention and effective attention are (Brunner et al. 2020, Fig. 2).

    Attributes
    ----------
    pearson, spearman
        [layer, head], of all entries of the two matrices that the model can use: 1 where they are the
        same, even if they are constant, as in a text of one token; NaN where only one is constant, as
        A⊥ of a head that writes nothing.
    baseline
        [layer], Pearson's r of the same for random matrices of the same size, with the same entries
        in use: softmax of normal scores of standard deviation 2, normal value vectors.
    special_before, special_after
        [layer, head], the mean attention that goes to special tokens, in A and in A⊥.
    """

    pearson: Float[Tensor, "layer head"]
    spearman: Float[Tensor, "layer head"]
    baseline: Float[Tensor, "layer"]
    special_before: Float[Tensor, "layer head"]
    special_after: Float[Tensor, "layer head"]

    def __repr__(self) -> str:
        mean, baseline = float(self.pearson.nanmean()), float(self.baseline.mean())
        return f"EffectiveCorrelation(mean Pearson {mean:.3f}, random baseline {baseline:.3f})"


# --- of a run -----------------------------------------------------------------------------------


def effective_attention(
    analyses: Analyses, value_bias: bool = True
) -> tuple[Float[Tensor, "layer head target source"], float]:
    """Effective attention of every head, and the largest |A⊥T − AT| / |AT|; computed once."""

    def compute() -> tuple[Tensor, float]:
        found, worst, limit = torch.empty_like(analyses.run.attention), 0.0, _tolerance(analyses)
        for kept, layer in zip(found, analyses.run.stream.layers, strict=True):
            attended = layer.attention
            alpha, t = attended.alpha, effective.coordinates(attended, value_bias)
            kept.copy_(effective.effective_attention(alpha, t, limit, attended.visible)[0])
            worst = max(worst, effective.deviation(alpha, kept, t))
        return found, worst

    return analyses.once(("effective attention", value_bias), compute)


def effective_map(analyses: Analyses, options: Options) -> Values:
    """Effective attention, as a map."""
    return Values(*effective_attention(analyses, options.value_bias))


def null_map(analyses: Analyses, options: Options) -> Values:
    """Attention minus effective attention, as a map."""
    kept, error = effective_attention(analyses, options.value_bias)
    return Values(analyses.run.attention - kept, error)


def attention_identifiability(
    analyses: Analyses, value_bias: bool = True, tolerance: float | None = None
) -> AttentionIdentifiability:
    """Ranks and dimensions of the null spaces of all heads, computed once.

    Parameters
    ----------
    value_bias
        Whether value vectors are taken as the model uses them, or without their bias.
    tolerance
        Singular values below this share of the largest count as zero; by default the rounding error
        of the model's precision.

    Raises
    ------
    ProsectError
        If value_bias is not True or False, or the tolerance is not from 0 to less than 1.
    """
    limit = _checked(analyses, value_bias, tolerance)

    def compute() -> AttentionIdentifiability:
        n, found, counts = analyses.sizes.tokens, [], []
        for layer in analyses.run.stream.layers:
            attended = layer.attention
            _, seen = effective.widest_row(n, attended.visible)
            t = effective.coordinates(attended, value_bias)[:, seen.to(attended.value.device)]
            found.append(effective.null_space_dimensions(t, limit))
            counts.append(len(seen))
        rank, dimension, with_sums = (torch.stack(list(x)) for x in zip(*found, strict=True))
        return AttentionIdentifiability(n, rank, dimension, with_sums, torch.tensor(counts))

    return analyses.once(("attention identifiability", value_bias, limit), compute)


def identifiability_is_known(analyses: Analyses) -> bool:
    """Whether :func:`attention_identifiability` is computed, with its default options."""
    return analyses.known(("attention identifiability", True, _tolerance(analyses))) is not None


def cost_of_identifiability(sizes: Sizes) -> float:
    """The multiplications of :func:`attention_identifiability`, roughly.

    An orthonormal basis of each head's rows of W_O, and of its values with and without ones.
    """
    written = sizes.heads * sizes.d_head * sizes.d
    # in double precision and of narrow matrices: each takes as long as several of a large product
    return (
        10.0
        * sizes.layers
        * sizes.d_head
        * (written + 2 * sizes.heads * sizes.tokens * sizes.d_head)
    )


def nullspace(
    analyses: Analyses,
    layer: int,
    head: int,
    value_bias: bool = True,
    tolerance: float | None = None,
) -> NullSpace:
    """The null space of one head; the options are those of :func:`attention_identifiability`.

    Raises
    ------
    ProsectError
        If there is no such layer or head, or an option is not one of those allowed.
    """
    layer, head = analyses.head(layer, head)
    limit = _checked(analyses, value_bias, tolerance)
    attended = analyses.run.stream.layers[layer].attention
    return NullSpace.of(attended, layer, head, limit, value_bias)


def effective_correlation(
    analyses: Analyses, special: Sequence[int], value_bias: bool = True, seed: int = 0
) -> EffectiveCorrelation:
    """Compare attention with effective attention, head by head, beside a random baseline.

    Parameters
    ----------
    special
        The positions of special tokens.
    value_bias
        Whether value vectors are taken with their bias.
    seed
        Of the random baseline.

    Raises
    ------
    ProsectError
        If value_bias is not True or False, or the seed is not an integer.
    """
    check_flag(value_bias, "value_bias")
    seed = whole_number(seed, "seed")
    attention, (kept, _) = analyses.run.attention, effective_attention(analyses, value_bias)
    can_see = visible(analyses)

    def each(measure: Callable[[Tensor, Tensor], float]) -> Tensor:
        return torch.tensor(
            [
                [measure(a[seen], b[seen]) for a, b in zip(x, y, strict=True)]
                for x, y, seen in zip(attention, kept, can_see, strict=True)
            ]
        )

    masks = {mask.cpu().numpy().tobytes(): mask.cpu() for mask in can_see}
    d_head = analyses.sizes.d_head
    baselines = {key: random_baseline(d_head, mask, seed) for key, mask in masks.items()}
    return EffectiveCorrelation(
        pearson=each(measures.pearson),
        spearman=each(lambda a, b: float(measures.spearman(a, b))),
        baseline=torch.tensor([baselines[mask.cpu().numpy().tobytes()] for mask in can_see]),
        special_before=attention[..., special].sum(-1).mean(-1),
        special_after=kept[..., special].sum(-1).mean(-1),
    )


def _tolerance(analyses: Analyses) -> float:
    """The share of the largest singular value below which another is rounding error."""
    sizes = analyses.sizes
    return effective.default_tolerance(sizes.tokens, sizes.d_head, analyses.dtype)


def _checked(analyses: Analyses, value_bias: bool, tolerance: float | None) -> float:
    """The tolerance that holds, once both options are checked."""
    check_flag(value_bias, "value_bias")
    if tolerance is None:
        return _tolerance(analyses)
    check_share(tolerance, "tolerance", below_one=True)
    return tolerance


def random_baseline(
    d_head: int, visible: Bool[Tensor, "target source"], seed: int = 0, heads: int = 4
) -> float:
    """Pearson's r of A and A⊥ for random attention over random values; 1 if none sees over d_head."""
    generator, n = torch.Generator().manual_seed(seed), len(visible)
    scores = 2.0 * torch.randn(heads, n, n, generator=generator, dtype=torch.float64)
    alpha = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    values = torch.randn(heads, n, d_head, generator=generator, dtype=torch.float64)
    tolerance = effective.default_tolerance(n, d_head, torch.float64)
    found, _ = effective.effective_attention(alpha, values, tolerance, visible)
    pairs = zip(alpha, found, strict=True)
    return sum(measures.pearson(a[visible], b[visible]) for a, b in pairs) / heads

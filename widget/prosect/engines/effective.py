"""Effective attention and its null space (Brunner et al. 2020, section 4).

A head's output is A T with T = V W_O. The component of a row of A in the left null space of T does not
change the output. Effective attention is the remainder, A⊥ = A − Proj_LN(T)(A) = A B Bᵀ with B an
orthonormal basis of the column space of T. The null space itself, of n − rank(T) dimensions, is never
computed. Where rows do not see all tokens, in a causal model or within a sliding window, each row is
projected by itself, with the T of the tokens that it sees.

Everything is computed in float64, because ranks depend on small singular values.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from prosect.engines.linear import output_by_head, values_by_head
from prosect.engines.records import AttentionRecord

ROWS = 32
"""How many rows that need their own projection are computed at once."""
NUMBERS = 2**18
"""The largest number of values in one matrix of several rows or heads: it fits in a cache."""
SHARE = 1e-5
"""VᵀV squares the singular values of V. It is used where they exceed this share of the largest."""


def coordinates(
    attention: AttentionRecord, value_bias: bool = True
) -> Float[Tensor, "head source d_head"]:
    """T = V W_O of every head in d_head coordinates: the same column space, the same singular values.

    With W_Oᵀ = Q R, T = (V Rᵀ) Qᵀ. Q is orthonormal, so V Rᵀ can stand for T and is far narrower.

    Parameters
    ----------
    attention
        What an attention sublayer did.
    value_bias
        Whether V is as the model uses it, or without its bias.
    """
    value = values_by_head(attention, value_bias, torch.float64)
    r = torch.linalg.qr(output_by_head(attention, value).transpose(1, 2), mode="r").R
    return value @ r.transpose(1, 2)


def default_tolerance(n: int, d: int, dtype: torch.dtype) -> float:
    """The share of the largest singular value below which another is rounding error."""
    precise = torch.promote_types(dtype, torch.float32)
    return max(n, d) * torch.finfo(precise).eps


def column_basis(
    t: Float[Tensor, "head source d_head"], tolerance: float
) -> tuple[Float[Tensor, "head source r"], Int[Tensor, "head"]]:
    """An orthonormal basis of each head's column space, zero beyond its rank; and the ranks.

    By a thin QR. Where R may be rank deficient, its singular values, which are those of T, decide.
    """
    basis, r = torch.linalg.qr(t)
    rank = torch.full(t.shape[:1], r.shape[1], device=t.device)
    unsure = ~_surely_regular(r, 2 * tolerance)
    if unsure.any():
        u, s, _ = torch.linalg.svd(r[unsure], full_matrices=False)
        kept = s > tolerance * s[:, :1]
        basis[unsure] = basis[unsure] @ (u * kept[:, None])
        rank[unsure] = kept.sum(-1)
    return basis, rank


def _surely_regular(
    factor: Float[Tensor, "*batch row d"], share: float, upper: bool = True
) -> Bool[Tensor, "*batch"]:
    """Whether all singular values of triangular matrices exceed a share of the largest.

    From bounds: the smallest is at least 1 / |R⁻¹|_F, the largest at most |R|_F.
    """
    if factor.shape[-1] != factor.shape[-2]:
        return torch.zeros(factor.shape[:-2], dtype=torch.bool, device=factor.device)
    eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    inverse = torch.linalg.solve_triangular(factor, eye, upper=upper)
    sizes = [x.square().sum((-2, -1)).sqrt() for x in (factor, inverse)]
    return share * sizes[0] * sizes[1] < 1


def effective_attention(
    alpha: Float[Tensor, "head target source"],
    t: Float[Tensor, "head source d_head"],
    tolerance: float,
    visible: Bool[Tensor, "target source"] | None = None,
) -> tuple[Float[Tensor, "head target source"], Int[Tensor, "head"]]:
    """A⊥ of every head, in the precision of A, and the rank of its T.

    Parameters
    ----------
    alpha
        The attention weights A.
    t
        T in coordinates, see :func:`coordinates`.
    tolerance
        Relative to the largest singular value of each head, or of what each row sees.
    visible
        Which sources each row sees; all of them where there is no mask.
    """
    if visible is not None and not visible.all():
        heads = max(1, NUMBERS // (ROWS * min(t.shape[1:]) ** 2))
        blocks = zip(alpha.split(heads), t.split(heads), strict=True)
        kept, ranks = zip(*(_by_row(*block, visible, tolerance) for block in blocks), strict=True)
        return torch.cat(kept), torch.cat(ranks)
    basis, rank = column_basis(t, tolerance)
    n, effective = alpha.shape[-1], torch.empty_like(alpha)
    scratch = t.new_empty(min(n, max(1, NUMBERS // n)), n)
    for a, b, r, out in zip(alpha, basis, rank.tolist(), effective, strict=True):
        if r == n:  # without a null space every row is its own projection, to the bit
            out.copy_(a)
            continue
        for own, kept in zip(a.split(len(scratch)), out.split(len(scratch)), strict=True):
            rows = scratch[: len(own)].copy_(own)
            # (Bᵀ Aᵀ)ᵀ: BLAS is quicker with few rows than with few columns
            kept.copy_(torch.matmul((b.T @ rows.T).T, b.T, out=rows))
    return effective, rank


def _by_row(
    alpha: Float[Tensor, "head target source"],
    t: Float[Tensor, "head source d_head"],
    visible: Bool[Tensor, "target source"],
    tolerance: float,
) -> tuple[Float[Tensor, "head target source"], Int[Tensor, "head"]]:
    """Project every row on the V that it sees: A⊥_t = V (VᵀV)⁺ Vᵀ a_t.

    By the cheapest method that is safe. If the rows of V are independent, a_t does not change. If
    VᵀV is well conditioned, its Cholesky factor solves the system. Otherwise an SVD of V decides.
    """
    result = alpha.to(t.dtype) * visible
    turned, kept = _turned(t, tolerance)
    settled = torch.zeros(result.shape[:2], dtype=torch.bool, device=t.device)
    for rows in (visible.sum(-1) <= t.shape[-1]).nonzero()[:, 0].split(ROWS):
        settled[:, rows] = _independent(t, visible[rows], tolerance)
    for rows in (~settled).any(0).nonzero()[:, 0].split(ROWS):
        some = visible[rows].any(0).nonzero()[:, 0]
        place = (slice(None), rows[:, None], some)
        own, seen = result[place], visible[rows][:, some]
        projected, sound = _solved(own, turned[:, some], kept, seen, tolerance)
        chosen = sound & ~settled[:, rows]
        result[place] = torch.where(chosen[..., None], projected, own)
        settled[:, rows] |= sound
    for row in (~settled).any(0).nonzero()[:, 0].tolist():
        heads, seen = (~settled[:, row]).nonzero(), visible[row].nonzero()[:, 0]
        own = result[heads, row, seen]
        basis, rank = column_basis(t[heads, seen], tolerance)
        projected = torch.einsum("hsr,hur,hu->hs", basis, basis, own)
        full = (rank == len(seen))[:, None]
        result[heads, row, seen] = torch.where(full, own, projected)
    return result.to(alpha.dtype), kept.sum(-1)


def _turned(
    t: Float[Tensor, "head source d_head"], tolerance: float
) -> tuple[Float[Tensor, "head source k"], Bool[Tensor, "head k"]]:
    """T, rotated where it is rank deficient so that few columns remain; and which columns those are."""
    r = torch.linalg.qr(t, mode="r").R
    if _surely_regular(r, 2 * tolerance).all():
        return t, torch.ones_like(t[:, 0], dtype=torch.bool)
    _, s, w = torch.linalg.svd(r, full_matrices=False)
    return t @ w.transpose(1, 2), s > tolerance * s[:, :1]


def _independent(
    t: Float[Tensor, "head source d_head"],
    visible: Bool[Tensor, "row source"],
    tolerance: float,
) -> Bool[Tensor, "head row"]:
    """Whether the rows of the V that each row sees are independent: V Vᵀ is well conditioned."""
    some = visible.any(0)
    v, seen = t[:, some], visible[:, some]
    gram = (v @ v.transpose(1, 2))[:, None] * (seen[:, :, None] & seen[:, None, :])
    return _factored(gram, seen.expand(len(t), -1, -1), tolerance)[1]


def _factored(
    gram: Float[Tensor, "head row k k"], present: Bool[Tensor, "head row k"], tolerance: float
) -> tuple[Float[Tensor, "head row k k"], Bool[Tensor, "head row"]]:
    """Cholesky factors, and which are accurate enough. Absent entries count as independent."""
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    size = diagonal.sum(-1, keepdim=True) / present.sum(-1, keepdim=True)
    diagonal.add_(~present * size)
    factor, failed = torch.linalg.cholesky_ex(gram)
    sound = _surely_regular(factor, max(SHARE, 2 * tolerance), upper=False)
    return factor, sound & (failed == 0)


def _solved(
    a: Float[Tensor, "head row source"],
    turned: Float[Tensor, "head source k"],
    kept: Bool[Tensor, "head k"],
    visible: Bool[Tensor, "row source"],
    tolerance: float,
) -> tuple[Float[Tensor, "head row source"], Bool[Tensor, "head row"]]:
    """V (VᵀV)⁻¹ Vᵀ a of every row, and which of them are accurate.

    A row is accurate if its V has the rank of T, up to rounding error.
    """
    columns, seen = turned * kept[:, None], visible.to(a)
    everywhere = visible.all(0)
    common, others = columns[:, everywhere], columns[:, ~everywhere]
    products = others[..., :, None] * others[..., None, :]
    gram = torch.einsum("rs,hskl->hrkl", seen[:, ~everywhere], products)
    gram += (common.transpose(1, 2) @ common)[:, None]
    factor, sound = _factored(gram, kept[:, None].expand(-1, len(a[0]), -1), tolerance)
    size, lost = ((turned * which[:, None]).square().sum(-1) @ seen.T for which in (kept, ~kept))
    sound &= lost <= tolerance**2 * size / kept.shape[-1]
    rest = a
    for _ in range(2):  # the second step takes back what squaring lost
        weights = torch.cholesky_solve((rest @ columns)[..., None], factor)[..., 0]
        rest = rest - (weights @ columns.transpose(1, 2)) * seen
    return a - rest, sound


def deviation(
    alpha: Float[Tensor, "head target source"],
    other: Float[Tensor, "head target source"],
    t: Float[Tensor, "head source d_head"],
) -> float:
    """How far another attention is from the same output: the largest |A'T − AT| / |AT| of a head.

    Both are those of the row where they are largest.
    """
    worst = 0.0
    for a, b, v in zip(alpha, other, t, strict=True):
        before, after = (v.T @ x.to(v.dtype).T for x in (a, b))
        size = before.norm(dim=0).amax().clamp_min(torch.finfo(v.dtype).tiny)
        worst = max(worst, float((after - before).norm(dim=0).amax() / size))
    return worst


def null_basis(
    t: Float[Tensor, "source d_head"], tolerance: float, keep_sums: bool = False
) -> Float[Tensor, "source dimension"]:
    """An orthonormal basis of the left null space of T, or of [T, 1] where row sums are to be kept."""
    if keep_sums:
        ones = torch.full_like(t[:, :1], float(t.norm()) / len(t) ** 0.5 or 1.0)
        t = torch.cat([t, ones], dim=1)
    u, s, _ = torch.linalg.svd(t, full_matrices=True)
    rank = int((s > tolerance * s[0]).sum())
    return u[:, rank:]


def null_space_dimensions(
    t: Float[Tensor, "head source d_head"], tolerance: float
) -> tuple[Int[Tensor, "head"], Int[Tensor, "head"], Int[Tensor, "head"]]:
    """Of every head: rank(T), and the dimensions n − rank(T) and n − rank([T, 1]) of the null spaces."""
    n = t.shape[1]
    rank = column_basis(t, tolerance)[1]
    # the ones are scaled like T, so that the tolerance means the same for both
    scale = t.flatten(1).norm(dim=1)[:, None, None] / n**0.5
    ones = torch.where(scale > 0, scale, torch.ones_like(scale)).expand(-1, n, 1)
    with_ones = column_basis(torch.cat([t, ones], dim=-1), tolerance)[1]
    return rank, n - rank, n - with_ones


def widest_row(
    n: int, visible: Bool[Tensor, "target source"] | None
) -> tuple[int, Int[Tensor, "seen"]]:
    """The row that attends to most of n tokens (the last of several), and the tokens it attends to."""
    if visible is None:
        return n - 1, torch.arange(n)
    counts = visible.sum(-1)
    row = int((counts == counts.max()).nonzero()[-1])
    return row, visible[row].nonzero()[:, 0]


def largest_step(
    row: Float[Tensor, "source"], direction: Float[Tensor, "source"]
) -> Float[Tensor, ""]:
    """The largest t for which row + t · direction has no negative entry; infinite if unbounded."""
    falling = direction < -1e-12 * direction.abs().max()
    steps = torch.where(falling, row / -direction, torch.full_like(row, torch.inf))
    return steps.min()

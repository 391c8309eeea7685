"""Effective attention and its null space (Brunner et al. 2020, section 4).

A head's output is A T with T = V W_O. What of a row of A lies in the left null space of T cannot
change the output; effective attention is the rest, A⊥ = A − Proj_LN(T)(A) = A B Bᵀ with B an
orthonormal basis of the column space of T. The null space itself, of n − rank(T) dimensions, is never
made. In a causal model row t may only use positions ≤ t, so it is projected on its own prefix.

Everything is in float64: ranks are decisions.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from prosect.anatomy.stream import Attended

PREFIX_NUMBERS = 2**23
"""How many numbers the running sums of a block of heads may take, unless one head needs more."""


def coordinates(attended: Attended, value_bias: bool = True) -> Float[Tensor, "head source d_head"]:
    """T = V W_O of every head in d_head coordinates: the same column space, the same singular values.

    With W_Oᵀ = Q R, T = (V Rᵀ) Qᵀ, and Q only turns: V Rᵀ is as good and far narrower.

    Parameters
    ----------
    attended
        What an attention sublayer did.
    value_bias
        Whether V is as the model uses it, or without its bias.
    """
    heads = len(attended.alpha)
    value = attended.value.double()
    if not value_bias and attended.value_bias is not None:
        value = value - attended.value_bias.double()[:, None]
    value = value.repeat_interleave(heads // len(value), dim=0)
    output = attended.weight.double().unflatten(0, (heads, -1))
    r = torch.linalg.qr(output.transpose(1, 2), mode="r").R
    return value @ r.transpose(1, 2)


def default_tolerance(n: int, d: int, dtype: torch.dtype) -> float:
    """Singular values below this share of the largest are zero: rounding error of that precision."""
    precise = torch.promote_types(dtype, torch.float32)
    return max(n, d) * torch.finfo(precise).eps


def column_basis(
    t: Float[Tensor, "head source d_head"], tolerance: float
) -> tuple[Float[Tensor, "head source r"], Int[Tensor, "head"]]:
    """An orthonormal basis of each head's column space, zero beyond its rank; and the ranks.

    By a thin QR and the singular values of its small R, which are those of T.
    """
    q, r = torch.linalg.qr(t)
    u, s, _ = torch.linalg.svd(r, full_matrices=False)
    kept = s > tolerance * s[:, :1]
    return q @ (u * kept[:, None]), kept.sum(-1)


def effective_attention(
    alpha: Float[Tensor, "head target source"],
    t: Float[Tensor, "head source d_head"],
    tolerance: float,
    causal: bool = False,
) -> tuple[Float[Tensor, "head target source"], Int[Tensor, "head"]]:
    """A⊥ of every head and the rank of its T.

    Parameters
    ----------
    alpha
        The attention weights A.
    t
        T in coordinates, see :func:`coordinates`.
    tolerance
        Relative to the largest singular value of each head (and of each prefix in causal models).
    causal
        Project every row on its own prefix.
    """
    if causal:
        a = alpha.double()
        heads = max(1, PREFIX_NUMBERS // (t.shape[1] * min(t.shape[1:]) ** 2))
        blocks = zip(a.split(heads), t.split(heads), strict=True)
        kept, ranks = zip(*(_by_prefix(*block, tolerance) for block in blocks), strict=True)
        return torch.cat(kept), torch.cat(ranks)
    basis, rank = column_basis(t, tolerance)
    effective = torch.empty_like(alpha, dtype=t.dtype)
    for head, (a, b) in enumerate(zip(alpha, basis, strict=True)):  # one fits in the cache
        torch.matmul(a.to(t.dtype) @ b, b.T, out=effective[head])
    # without a null space every row is its own projection, to the bit
    full = rank == alpha.shape[-1]
    effective[full] = alpha[full].to(t.dtype)
    return effective, rank


def _by_prefix(
    a: Float[Tensor, "head target source"], t: Float[Tensor, "head source d_head"], tolerance: float
) -> tuple[Float[Tensor, "head target source"], Int[Tensor, "head"]]:
    """Row t on its own prefix: A⊥_t = V (VᵀV)⁺ o_t, V the prefix and o_t the head's output.

    V is first turned so that its dependent columns vanish. Then VᵀV, a running sum, has a Cholesky
    factor as soon as a prefix spans what the whole does; where it does not yet, or the factor is
    nearly singular, or what vanished is not small beside the prefix, the singular values decide.
    """
    _, s, w = torch.linalg.svd(torch.linalg.qr(t, mode="r").R, full_matrices=False)
    kept = s > tolerance * s[:, :1]
    rank = kept.sum(-1)
    turned = t @ w.transpose(1, 2)  # [head, source, min(n, d)]
    columns, vanished = turned * kept[:, None], turned * ~kept[:, None]
    gram = (columns[..., :, None] * columns[..., None, :]).cumsum(1)
    gram += torch.diag_embed((~kept).to(t.dtype) * s[:, :1].square())[:, None]
    factor, failed = torch.linalg.cholesky_ex(gram)
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    # rounding enters VᵀV squared: a factor is trusted only well away from it and from the tolerance
    sound = (failed == 0) & (diagonal.amin(-1) > max(1e-4, 10 * tolerance) * diagonal.amax(-1))
    lost, size = (x.square().sum(-1).cumsum(1) for x in (vanished, columns))
    sound &= lost <= tolerance**2 * size / s.shape[1]
    eye = torch.eye(factor.shape[-1], dtype=t.dtype, device=t.device)
    factor = torch.where(sound[..., None, None], factor, eye)
    outputs = (a @ columns)[..., None]
    weights = torch.cholesky_solve(outputs, factor)[..., 0] * kept[:, None]
    result = (weights @ columns.transpose(1, 2)).tril()
    # independent rows leave nothing to project out
    free = sound & (rank[:, None] == torch.arange(1, t.shape[1] + 1, device=t.device))
    result = torch.where(free[..., None], a, result)
    for row in (~sound).any(0).nonzero()[:, 0].tolist():
        chosen = (~sound[:, row]).nonzero()[:, 0]
        prefix, mine = t[chosen, : row + 1], a[chosen, row, : row + 1, None]
        basis, found = column_basis(prefix, tolerance)
        projected = basis @ (basis.transpose(1, 2) @ mine)
        own = torch.where((found == row + 1)[:, None, None], mine, projected)
        result[chosen, row, : row + 1] = own[..., 0]
    return result, rank


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


def freedom(
    t: Float[Tensor, "head source d_head"], tolerance: float
) -> tuple[Int[Tensor, "head"], Int[Tensor, "head"], Int[Tensor, "head"]]:
    """Of every head: rank(T), n − rank(T), and n − rank([T, 1]), the freedom that keeps row sums."""
    n = t.shape[1]
    rank = column_basis(t, tolerance)[1]
    # the ones are scaled like T, so that the tolerance means the same for both
    scale = t.flatten(1).norm(dim=1)[:, None, None] / n**0.5
    ones = torch.where(scale > 0, scale, torch.ones_like(scale)).expand(-1, n, 1)
    with_ones = column_basis(torch.cat([t, ones], dim=-1), tolerance)[1]
    return rank, n - rank, n - with_ones


def furthest(row: Float[Tensor, "source"], direction: Float[Tensor, "source"]) -> Float[Tensor, ""]:
    """The largest t for which row + t · direction has no negative entry; infinite if none ever has."""
    falling = direction < -1e-12 * direction.abs().max()
    steps = torch.where(falling, row / -direction, torch.full_like(row, torch.inf))
    return steps.min()


def allowed(n: int, causal: bool) -> Bool[Tensor, "target source"]:
    """Which sources a target may attend to."""
    everything = torch.ones(n, n, dtype=torch.bool)
    return everything.tril() if causal else everything

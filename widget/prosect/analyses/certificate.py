"""Certificates: the permitted difference between the sum of parts and what the model computed."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.engines import terms as engine
from prosect.engines.records import Stream
from prosect.errors import ReconstructionError

TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""The largest relative error of a decomposition that is accepted, by the model's precision.

A model in half precision rounds its residual stream at every step.
"""


def certify(
    values: Float[Tensor, "part *axes d"],
    whole: Float[Tensor, "*axes d"],
    stream: Stream,
    dtype: torch.dtype,
) -> float:
    """The largest relative gap between sums of parts and wholes, once it is checked.

    Raises
    ------
    ReconstructionError
        If it exceeds the tolerance; the message names the first step where the sum is wrong.
    """
    # layer by layer (or target by target), which needs less memory
    gaps = [
        engine.reconstruction_error(parts.sum(0), e).max()
        for parts, e in zip(values.unbind(1), whole, strict=True)
    ]
    error = float(torch.stack(gaps).max())
    allowed = TOLERANCES[dtype]
    if not error <= allowed:
        step = engine.first_break(stream, allowed)
        raise ReconstructionError(
            f"The parts miss the hidden states by {error:.1e} (relative), first at the {step}: "
            "look for a hook or an adapter there that changes what the model computes, "
            "or trace again if the weights were changed since."
        )
    return error


def certified(error: float, what: str, dtype: torch.dtype) -> float:
    """The relative gap between a sum of parts and the whole, once it is checked.

    Raises
    ------
    ReconstructionError
        If it exceeds the tolerance of the model's precision.
    """
    return _checked(error, f"The parts of {what} miss what the model computed", dtype)


def agreed(error: float, what: str, dtype: torch.dtype) -> float:
    """The relative gap between the results of an engine and of the model, once it is checked.

    Raises
    ------
    ReconstructionError
        If it exceeds the tolerance of the model's precision.
    """
    return _checked(error, f"{what} differs from that of the model itself", dtype)


def _checked(error: float, sentence: str, dtype: torch.dtype) -> float:
    if not error <= TOLERANCES[dtype]:
        raise ReconstructionError(
            f"{sentence} by {error:.1e} (relative): look for a hook or an adapter that changes what "
            "the model computes, or trace again if the weights were changed since."
        )
    return error


def relative_gap(found: Float[Tensor, "*axes d"], expected: Float[Tensor, "*axes d"]) -> float:
    """The largest |found − expected| / |expected|; 0 for equal vectors, also zero vectors."""
    gap = (found - expected).norm(dim=-1)
    ratio = gap / expected.norm(dim=-1)
    return float(torch.where(gap == 0, 0.0, ratio).max())

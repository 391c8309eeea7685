"""The encoding of arrays for the browser: packed into one binary trait, with a manifest.

Floats are encoded as 16-bit logarithms, with a relative error of at most 0.1 %, or as float32 if
their range is too wide for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

PRECISION = 1e-3
_CODES = 0x7FFF  # 15 bits of magnitude under a sign bit; magnitude 0 stands for the value 0
_ALIGNMENT = 8


class Spec(TypedDict, total=False):
    """The encoding of one array, and its offset in the packed bytes."""

    dtype: str
    shape: list[int]
    low: float
    step: float
    offset: int
    nbytes: int


def encode(array: NDArray[Any]) -> tuple[Spec, bytes]:
    """Encode an array: integers unchanged, floats as logarithms or, if necessary, as float32."""
    if np.issubdtype(array.dtype, np.floating):
        encoded = encode_logarithms(array)
        if encoded is not None:
            return encoded
        array = array.astype(np.float32)
    return _spec(array), _little_endian(array)


def encode_logarithms(array: NDArray[Any]) -> tuple[Spec, bytes] | None:
    """Encode values as sign and logarithm: |v| = exp(low + (m − 1)·step) for m ≥ 1, else 0.

    Returns None where the values span too many orders of magnitude for the promised precision.
    """
    magnitude = np.abs(array.astype(np.float64))
    present = magnitude > 0
    if not present.any():
        low, step = 0.0, 0.0
        codes = np.zeros(array.shape, np.uint16)
    else:
        logs = np.log(magnitude, where=present, out=np.zeros_like(magnitude))
        low, high = float(logs[present].min()), float(logs[present].max())
        step = (high - low) / (_CODES - 1)
        if np.expm1(step / 2) > PRECISION:
            return None
        rank = np.rint((logs - low) / step) if step > 0 else np.zeros_like(logs)
        codes = np.where(present, rank + 1, 0).astype(np.uint16)
        codes |= np.where(array < 0, 0x8000, 0).astype(np.uint16)
    spec: Spec = {**_spec(codes), "dtype": "log16", "low": low, "step": step}
    return spec, _little_endian(codes)


def pack(arrays: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Spec], bytes]:
    """Encode arrays back to back, each at an offset that every element type may start at."""
    manifest: dict[str, Spec] = {}
    packed = bytearray()
    for name, array in arrays.items():
        spec, data = encode(array)
        packed.extend(bytes(-len(packed) % _ALIGNMENT))
        manifest[name] = {**spec, "offset": len(packed), "nbytes": len(data)}
        packed.extend(data)
    return manifest, bytes(packed)


def _spec(array: NDArray[Any]) -> Spec:
    return {"dtype": array.dtype.name, "shape": list(array.shape)}


def _little_endian(array: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()

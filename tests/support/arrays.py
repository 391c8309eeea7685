"""Arrays as the front end reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def decode(spec: Any, data: bytes) -> NDArray[Any]:
    """A few plain lines from the format's description, as the front end reads it."""
    shape = spec["shape"]
    if spec["dtype"] != "log16":
        return np.frombuffer(data, np.dtype(spec["dtype"]).newbyteorder("<")).reshape(shape)
    codes = np.frombuffer(data, "<u2").astype(np.int64).reshape(shape)
    sign = np.where(codes & 0x8000, -1.0, 1.0)
    m = codes & 0x7FFF
    return np.where(m == 0, 0.0, sign * np.exp(spec["low"] + (m - 1) * spec["step"]))

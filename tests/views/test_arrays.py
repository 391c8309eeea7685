"""What travels to the browser is what the kernel has, to 0.1 % of every value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prosect.views.arrays import PRECISION, encode, pack
from support.arrays import decode

RANDOM = np.random.default_rng(0)
ARRAYS = {
    "attention": RANDOM.dirichlet(np.full(40, 0.5), size=(3, 40)).astype(np.float32),
    "signed": RANDOM.normal(size=(4, 7, 9)),
    "wide": (10.0 ** RANDOM.uniform(-12, 12, 500)).astype(np.float32),
    "wider than logarithms": np.array([1e-38, 1.0, 3e38, 0.0]),
    "zeros": np.zeros((2, 3)),
    "one value": np.full((2, 2), -0.25),
    "empty": np.zeros((0, 4)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_floats_come_back_within_the_promised_precision(name: str) -> None:
    array = ARRAYS[name]
    spec, data = encode(array)
    back = decode(spec, data)
    assert back.shape == array.shape
    assert (np.abs(back - array) <= PRECISION * np.abs(array)).all()
    assert (np.sign(back) == np.sign(array)).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_integers_come_back_as_they_are(dtype: type) -> None:
    array = np.arange(250, dtype=dtype).reshape(5, 50)
    spec, data = encode(array)
    assert (decode(spec, data) == array).all()


def test_attention_takes_two_bytes_a_value() -> None:
    array = ARRAYS["attention"]
    assert len(encode(array)[1]) == 2 * array.size


def test_packed_arrays_are_found_by_their_offsets() -> None:
    arrays = {"flags": np.ones((3, 1), np.uint8), **ARRAYS}
    manifest: Any
    manifest, data = pack(arrays)
    assert list(manifest) == list(arrays)
    for name, array in arrays.items():
        spec = manifest[name]
        assert spec["offset"] % 8 == 0
        back = decode(spec, data[spec["offset"] : spec["offset"] + spec["nbytes"]])
        assert np.allclose(back, array, rtol=PRECISION, atol=0)

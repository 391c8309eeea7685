"""What views can show: for each array that the front end knows by name, how to get it from a trace.

Nothing is computed until it is sent; names are those of the front end's ``arrays``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prosect.engines.identity import METRICS
from prosect.trace import Trace

Sources = dict[str, Callable[[], NDArray[Any]]]

NEIGHBORS = 10
BUDGET = 8 * 2**20
"""How many bytes of maps a view sends at once."""
WORK = 2e10
"""How many multiplications a view does for its maps before it shows."""
THUMBNAIL = 32
"""Maps of more tokens than this are pooled to this many cells a side for the overview."""


def token_maps(trace: Trace) -> Sources:
    """One array a kind and layer, [head, target, source] or [target, source]."""

    def layer_map(kind: str, layer: int) -> NDArray[Any]:
        return _numpy(trace.map(kind).values[layer])

    return {
        f"map/{kind}/{layer}": partial(layer_map, kind, layer)
        for kind in trace.kinds
        for layer in range(len(trace.attention))
    }


def thumbnails(trace: Trace) -> Sources:
    """Every map in small, [layer, head, s, s]; none where the maps are small themselves.

    One "head" where a kind has a map a layer.
    """
    if len(trace.tokens) <= THUMBNAIL:
        return {}

    def pooled(kind: str) -> NDArray[Any]:
        # the largest value in each cell: thin diagonals and single columns stay visible
        values = trace.map(kind).values
        heads = values if values.ndim == 4 else values[:, None]
        return _numpy(torch.nn.functional.adaptive_max_pool2d(heads, THUMBNAIL))

    return {f"overview/{name}": partial(pooled, name) for name in trace.kinds}


def sent_later(trace: Trace, names: Iterable[str]) -> list[str]:
    """Which arrays wait until they are looked at.

    All maps, where the quick ones together are over the budget of bytes; the costly ones, where
    computing them takes long or they are over what is left.
    """
    layers, heads, n, _ = trace.attention.shape
    quick, costly = 0, 0
    for kind in trace.kinds.values():
        size = 2 * layers * n * n * (heads if kind.per_head else 1)
        quick, costly = (quick, costly + size) if kind.costly else (quick + size, costly)
    feed_forward = trace.anatomy.blocks[0].feed_forward.output.weight.numel()
    work = 2 * layers * n * n * feed_forward * sum(kind.costly for kind in trace.kinds.values())
    every = quick > BUDGET
    slow = every or work > WORK or quick + costly > BUDGET

    def waits(name: str) -> bool:
        part, _, rest = name.partition("/")
        if part not in ("map", "overview"):
            return False
        kind = trace.kinds[rest.split("/")[0]]
        return slow if kind.costly else every and part == "map"

    return [name for name in names if waits(name)]


def importance(trace: Trace) -> Sources:
    """The importance of the four terms, [term, layer+1, token]."""
    return {"importance": lambda: _numpy(trace.terms().importance())}


def neighbors(trace: Trace) -> Sources:
    """Nearest input embeddings by each metric: ids, scores [layer+1, token, k], and recovered."""
    identify = cache(partial(trace.identify, NEIGHBORS))
    sources: Sources = {}
    for metric in METRICS:
        sources |= {
            f"neighbors/{metric}/ids": lambda m=metric: _numpy(identify(m).ids).astype(np.uint16),
            f"neighbors/{metric}/scores": lambda m=metric: _numpy(identify(m).scores),
            f"recovered/{metric}": lambda m=metric: _numpy(identify(m).recovered).astype(np.uint8),
        }
    return sources


def _numpy(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().cpu().numpy()

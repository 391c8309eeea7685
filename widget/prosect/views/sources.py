"""What views can show: for each array that the front end knows by name, how to get it from a trace.

Nothing is computed until it is sent; names are those of the front end's ``arrays``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prosect.engines import kinds
from prosect.engines.identity import METRICS
from prosect.trace import Trace

Sources = dict[str, Callable[[], NDArray[Any]]]

NEIGHBORS = 10
THUMBNAIL = 32
"""Maps of more tokens than this are pooled to this many cells a side for the overview."""


def token_maps(trace: Trace) -> Sources:
    """One array a kind and layer, [head, target, source] or [target, source]."""

    def layer_map(kind: str, layer: int) -> NDArray[Any]:
        return _numpy(trace.map(kind).values[layer])

    return {
        f"map/{kind}/{layer}": partial(layer_map, kind, layer)
        for kind in kinds.KINDS
        for layer in range(len(trace.attention))
    }


def thumbnails(trace: Trace) -> Sources:
    """Every head's map in small, [layer, head, s, s]; none where the maps are small themselves."""
    if len(trace.tokens) <= THUMBNAIL:
        return {}

    def pooled(kind: str) -> NDArray[Any]:
        # the largest value in each cell: thin diagonals and single columns stay visible
        values = trace.map(kind).values
        return _numpy(torch.nn.functional.adaptive_max_pool2d(values, THUMBNAIL))

    return {
        f"overview/{name}": partial(pooled, name)
        for name, kind in kinds.KINDS.items()
        if kind.per_head
    }


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

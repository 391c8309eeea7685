"""What views can show: for each array that the front end knows by name, how to get it from a trace.

Nothing is computed until it is sent; names are those of the front end's ``arrays``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prosect.analyses.identity import Identity
from prosect.analyses.kinds import Kind
from prosect.tokens import vocabulary_labels
from prosect.trace import Trace

Sources = dict[str, Callable[[], NDArray[Any]]]
Metric = Literal["cosine", "l2"]

NEIGHBORS = 10
BUDGET = 8 * 2**20
"""How many bytes of maps a view sends at once."""
PROBES = 16
"""How many random probes a token the attribution of a view is estimated from."""
PAGE = 48 * 2**20
"""How many bytes of maps a page holds."""
WORK = 2e9
"""How many multiplications a view does for one kind of map, or search, before it shows."""
PATIENCE = 1e12
"""How many multiplications a page does for one kind, some ten seconds; and a view, when asked."""
THUMBNAIL = 32
"""Maps of more tokens than this are pooled to this many cells a side for the overview."""


def token_maps(trace: Trace) -> Sources:
    """One array a kind and layer, [head, target, source] or [target, source]."""

    def layer_map(kind: str, layer: int) -> NDArray[Any]:
        return _numpy(values_of(trace, kind)[layer])

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
        values = values_of(trace, kind)
        heads = values if values.ndim == 4 else values[:, None]
        return _numpy(torch.nn.functional.adaptive_max_pool2d(heads, THUMBNAIL))

    return {f"overview/{name}": partial(pooled, name) for name in trace.kinds}


def values_of(trace: Trace, kind: str) -> Tensor:
    """The values of a map; attribution is estimated unless it was computed exactly before."""
    if kind == "attribution" and not trace.computed(kind):
        return trace.attribution(probes=PROBES).values
    return trace.map(kind).values


def kinds_shown(trace: Trace) -> list[dict[str, Any]]:
    """The kinds as the front end gets them; an estimate is called one."""
    kinds = [dict(vars(kind)) for kind in trace.kinds.values()]
    for kind in kinds:
        if kind["name"] == "attribution" and not trace.computed("attribution"):
            kind["hint"] = f"{kind['hint'].rstrip('.')}, estimated from {PROBES} probes a token."
    return kinds


def size_of(trace: Trace, kind: Kind) -> int:
    """How many bytes the maps of a kind take."""
    layers, heads, n, _ = trace.attention.shape
    return 2 * layers * n * n * (heads if kind.per_head else 1)


def work_of(trace: Trace, kind: Kind) -> float:
    """How many multiplications a kind takes from here, roughly; nothing once it is computed."""
    if not kind.costly or trace.computed(kind.name):
        return 0.0
    layers, _, n, _ = trace.attention.shape
    block = trace.anatomy.blocks[0]
    feed_forward = block.feed_forward.output.weight.numel()
    d = trace.hidden.shape[-1]
    # the multiplications of one forward pass, attention's own left out
    a_pass = 2.0 * layers * n * (4 * d * d + 2 * feed_forward)
    if kind.name == "contribution":
        return n * a_pass
    if kind.name == "attribution":
        return 2 * n * PROBES * a_pass
    passes = 2 if kind.name == "value_zeroing" else 1
    return passes * 2.0 * layers * n * n * feed_forward


def work_behind(trace: Trace, name: str) -> float:
    """How many multiplications an array of that name takes from here, roughly."""
    part, _, rest = name.partition("/")
    if part == "freedom":
        return _work_of_freedom(trace)
    if rest.startswith("vocabulary/"):
        return _work_of_search(trace, rest.split("/")[1])
    kind = trace.kinds.get(rest.split("/")[0])
    return 0.0 if kind is None else work_of(trace, kind)


def _work_of_search(trace: Trace, metric: Any) -> float:
    """Every hidden vector with every word of the vocabulary; nothing once it is done."""
    if trace.identified(NEIGHBORS, metric, "vocabulary"):
        return 0.0
    precision = 2.0 if metric == "l2" else 1.0  # distances take doubles
    return precision * trace.hidden.numel() * trace.anatomy.words.num_embeddings


def _work_of_freedom(trace: Trace) -> float:
    """An orthonormal basis of each head's rows of W_O, and of its values with and without ones."""
    layers, heads, n, _ = trace.attention.shape
    written = trace.anatomy.blocks[0].attention.output.weight
    d_head = written.shape[0] // heads
    # in double precision and of narrow matrices: each takes as long as several of a large product
    return 10.0 * layers * d_head * (written.numel() + 2 * heads * n * d_head)


def sent_later(trace: Trace, names: Iterable[str]) -> list[str]:
    """Which arrays wait until they are looked at.

    All maps, where the quick ones together are over the budget of bytes; the costly ones, where
    computing them takes long or they are over what is left; and all else that takes long.
    """
    kinds = trace.kinds.values()
    quick = sum(size_of(trace, kind) for kind in kinds if not kind.costly)
    every = quick > BUDGET
    left = BUDGET - quick
    later = {kind.name for kind in kinds if every}
    for kind in kinds:
        if kind.costly:
            left -= size_of(trace, kind)
            if left < 0 or work_of(trace, kind) > WORK:
                later.add(kind.name)

    def waits(name: str) -> bool:
        part, _, rest = name.partition("/")
        kind = trace.kinds.get(rest.split("/")[0])
        if kind is None:
            return work_behind(trace, name) > WORK
        # thumbnails of quick kinds are small and always there
        return kind.name in later and (part == "map" or kind.costly)

    return [name for name in names if waits(name)]


def kept_in_page(trace: Trace, first: str) -> list[str]:
    """The kinds that a page holds: the open one, and as many others as fit in time and bytes."""
    kept, left = [], PAGE
    for kind in sorted(trace.kinds.values(), key=lambda kind: kind.name != first):
        size = size_of(trace, kind)
        if kind.name == first or (size <= left and work_of(trace, kind) <= PATIENCE):
            kept.append(kind.name)
            left -= size
    return [name for name in trace.kinds if name in kept]


def importance(trace: Trace) -> Sources:
    """The importance of the four terms, [term, layer+1, token]."""
    return {"importance": lambda: _numpy(trace.terms().importance())}


def neighbors(trace: Trace) -> Sources:
    """Nearest input embeddings of the sentence and of the vocabulary, by each metric.

    For both, ids and scores [layer+1, token, k], and recovered [layer+1, token]. Ids of the sentence
    are positions. Those of the vocabulary count the words that occur among them: ``tokens`` are these
    words' indices in the vocabulary, ``words`` their labels, the bytes of a JSON list.
    """
    sources: Sources = {}
    for metric in get_args(Metric):
        near = partial(trace.identify, NEIGHBORS, metric)
        sources |= _found(metric, near)
        sources[f"neighbors/{metric}/ids"] = partial(_positions, near)
        near = partial(near, "vocabulary")
        sources |= _found(f"vocabulary/{metric}", near)
        place = f"neighbors/vocabulary/{metric}"
        sources[f"{place}/ids"] = partial(_places, near)
        sources[f"{place}/tokens"] = partial(_words, near)
        sources[f"{place}/words"] = partial(_labels, near, trace.lens.tokenizer)
    return sources


def _found(name: str, near: Callable[[], Identity]) -> Sources:
    return {
        f"neighbors/{name}/scores": lambda: _numpy(near().scores),
        f"recovered/{name}": lambda: _numpy(near().recovered).astype(np.uint8),
    }


def _positions(near: Callable[[], Identity]) -> NDArray[Any]:
    return _counted(_numpy(near().ids))


def _places(near: Callable[[], Identity]) -> NDArray[Any]:
    """For each neighbour, which of the words that occur it is."""
    return _counted(np.searchsorted(_words(near), _numpy(near().ids)))


def _words(near: Callable[[], Identity]) -> NDArray[np.uint32]:
    return np.unique(_numpy(near().ids)).astype(np.uint32)


def _labels(near: Callable[[], Identity], tokenizer: Any) -> NDArray[np.uint8]:
    labels = vocabulary_labels(_words(near).tolist(), tokenizer)
    return np.frombuffer(json.dumps(labels).encode(), np.uint8)


def freedom(trace: Trace) -> Sources:
    """Of every head, rank and freedom without and with row sums, [3, layer, head]."""

    def numbers() -> NDArray[Any]:
        found = trace.freedom()
        parts = (found.rank, found.dimension, found.dimension_with_sums)
        return _counted(_numpy(torch.stack(parts)))

    return {"freedom": numbers}


def _counted(numbers: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers in as few bytes as they need."""
    return numbers.astype(np.uint16 if numbers.max(initial=0) < 2**16 else np.uint32)


def _numpy(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().cpu().numpy()

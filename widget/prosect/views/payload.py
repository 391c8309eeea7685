"""The arrays that the front end may request, with their computation and its cost.

Arrays are computed when they are sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prosect.analyses.effective import cost_of_identifiability, identifiability_is_known
from prosect.analyses.identity import Candidates, Identity, cost_of_search
from prosect.analyses.kinds import Kind
from prosect.analyses.maps import Options
from prosect.engines.nearest import Metric
from prosect.tokens import vocabulary_labels
from prosect.trace import Trace

METRICS: tuple[Metric, ...] = ("cosine", "l2")
"""Those of the metrics that views show neighbours by."""
NEIGHBORS = 10
"""How many neighbours a token has in a view."""
MAX_INITIAL_BYTES = 8 * 2**20
"""How many bytes of maps a view sends at once."""
MAX_PAGE_BYTES = 48 * 2**20
"""How many bytes of maps a page holds."""
MAX_EAGER_FLOPS = 2e9
"""How many multiplications a view does for one kind of map, or search, before it shows."""
MAX_PAGE_FLOPS = 1e12
"""How many multiplications a page does for one kind, or search: some ten seconds."""
MAX_ANSWER_FLOPS = 30 * MAX_PAGE_FLOPS
"""How many multiplications a view does when it is asked for an array: some minutes."""
THUMBNAIL = 32
"""Maps of more tokens than this are pooled to this many cells a side for the overview."""


@dataclass(frozen=True)
class Array:
    """An array that the front end may request.

    Attributes
    ----------
    name
        The name of the array in the front end.
    compute
        The function that computes it.
    cost
        The approximate number of multiplications; 0 if it is already computed.
    hint
        A name for the computation, with which the message about a too high cost begins.
    call
        The call to run in a cell, after which the array is available.
    kind
        For maps: the kind.
    thumbnail
        Whether it is a map that is reduced in size.
    candidates, metric
        For neighbours: the arguments of the search.
    """

    name: str
    compute: Callable[[], NDArray[Any]]
    cost: Callable[[], float] = lambda: 0.0
    hint: str = ""
    call: str = ""
    kind: Kind | None = None
    thumbnail: bool = False
    candidates: Candidates | None = None
    metric: Metric | None = None


Table = Callable[[Trace], Iterator[Array]]
"""From a trace to the arrays of one part of a view."""


# --- maps -----------------------------------------------------------------------------------------


def token_maps(trace: Trace) -> Iterator[Array]:
    """One array per kind and layer, [head, target, source] or [target, source]."""
    for kind in trace.kinds.values():
        for layer in range(len(trace.attention)):
            compute = partial(_map_of_layer, trace, kind, layer)
            yield _map_array(trace, kind, f"map/{kind.name}/{layer}", compute)


def thumbnails(trace: Trace) -> Iterator[Array]:
    """Every map reduced in size, [layer, head, s, s]; nothing for short texts.

    The head axis has length 1 for kinds with one map per layer.
    """
    if len(trace.tokens) <= THUMBNAIL:
        return
    for kind in trace.kinds.values():
        compute = partial(_pooled, trace, kind)
        yield _map_array(trace, kind, f"overview/{kind.name}", compute, thumbnail=True)


def _map_array(
    trace: Trace,
    kind: Kind,
    name: str,
    compute: Callable[[], NDArray[Any]],
    thumbnail: bool = False,
) -> Array:
    return Array(
        name=name,
        compute=compute,
        cost=partial(cost_of, trace, kind),
        hint=kind.label,
        call=f"trace.map({kind.name!r})",
        kind=kind,
        thumbnail=thumbnail,
    )


def _map_of_layer(trace: Trace, kind: Kind, layer: int) -> NDArray[Any]:
    return numpy_of(values_of(trace, kind)[layer])


def _pooled(trace: Trace, kind: Kind) -> NDArray[Any]:
    # the largest value in each cell: thin diagonals and single columns stay visible
    values = values_of(trace, kind)
    heads = values if values.ndim == 4 else values[:, None]
    return numpy_of(torch.nn.functional.adaptive_max_pool2d(heads, THUMBNAIL))


def values_of(trace: Trace, kind: Kind) -> Tensor:
    """The values of a map; an estimate, if the kind has one and the exact map is not computed yet."""
    if kind.estimate is not None and not trace.computed(kind.name):
        return kind.estimate.compute(trace.analyses, Options()).values
    return trace.map(kind.name).values


def cost_of(trace: Trace, kind: Kind) -> float:
    """The approximate multiplications that a kind takes; 0 if it is already computed."""
    if kind.cost is None or trace.computed(kind.name):
        return 0.0
    cost = kind.cost if kind.estimate is None else kind.estimate.cost
    return cost(trace.analyses.sizes)


def size_of(trace: Trace, kind: Kind) -> int:
    """How many bytes the maps of a kind take."""
    layers, heads, n, _ = trace.attention.shape
    return 2 * layers * n * n * (heads if kind.per_head else 1)


def kinds_shown(trace: Trace) -> list[dict[str, Any]]:
    """The kinds as the front end gets them; an estimate is called one."""
    shown = []
    for kind in trace.kinds.values():
        hint = kind.hint
        if kind.estimate is not None and not trace.computed(kind.name):
            hint = f"{hint.rstrip('.')}, {kind.estimate.note}."
        shown.append(
            {
                "name": kind.name,
                "label": kind.label,
                "group": kind.group,
                "hint": hint,
                "reading": kind.reading,
                "reference": kind.reference,
                "per_head": kind.per_head,
                "signed": kind.signed,
            }
        )
    return shown


# --- terms, neighbours and identifiability ----------------------------------------------------------


def importance(trace: Trace) -> Iterator[Array]:
    """The importance of the four terms, [term, layer+1, token]."""
    yield Array("importance", lambda: numpy_of(trace.terms().importance()))


def neighbors(trace: Trace) -> Iterator[Array]:
    """Nearest input embeddings of the sentence and of the vocabulary, by each metric.

    For both, ids and scores [layer+1, token, k], and recovered [layer+1, token]. Ids of the sentence
    are positions. Those of the vocabulary count the words that occur among them: ``tokens`` are these
    words' indices in the vocabulary, ``words`` their labels, the bytes of a JSON list.
    """
    for metric in METRICS:
        near = partial(trace.identify, NEIGHBORS, metric)
        array = partial(Array, candidates="sentence", metric=metric)
        yield array(f"neighbors/{metric}/scores", partial(_scores, near))
        yield array(f"recovered/{metric}", partial(_recovered, near))
        yield array(f"neighbors/{metric}/ids", partial(_positions, near))
        near = partial(near, "vocabulary")
        array = partial(
            Array,
            cost=partial(_cost_of_search, trace, metric),
            hint=f"A search among {trace.anatomy.words.num_embeddings:,} words",
            call=f"trace.identify(metric={metric!r}, candidates='vocabulary')",
            candidates="vocabulary",
            metric=metric,
        )
        place = f"vocabulary/{metric}"
        yield array(f"neighbors/{place}/scores", partial(_scores, near))
        yield array(f"recovered/{place}", partial(_recovered, near))
        yield array(f"neighbors/{place}/ids", partial(_places, near))
        yield array(f"neighbors/{place}/tokens", partial(_words, near))
        yield array(f"neighbors/{place}/words", partial(_labels, near, trace.lens.tokenizer))


def _cost_of_search(trace: Trace, metric: Metric) -> float:
    if trace.identified(NEIGHBORS, metric, "vocabulary"):
        return 0.0
    return cost_of_search(trace.analyses.sizes, metric)


def _scores(near: Callable[[], Identity]) -> NDArray[Any]:
    return numpy_of(near().scores)


def _recovered(near: Callable[[], Identity]) -> NDArray[Any]:
    return numpy_of(near().recovered).astype(np.uint8)


def _positions(near: Callable[[], Identity]) -> NDArray[Any]:
    return _counted(numpy_of(near().ids))


def _places(near: Callable[[], Identity]) -> NDArray[Any]:
    """For each neighbour, which of the words that occur it is."""
    return _counted(np.searchsorted(_words(near), numpy_of(near().ids)))


def _words(near: Callable[[], Identity]) -> NDArray[np.uint32]:
    return np.unique(numpy_of(near().ids)).astype(np.uint32)


def _labels(near: Callable[[], Identity], tokenizer: Any) -> NDArray[np.uint8]:
    labels = vocabulary_labels(_words(near).tolist(), tokenizer)
    return np.frombuffer(json.dumps(labels).encode(), np.uint8)


def identifiability(trace: Trace) -> Iterator[Array]:
    """Rank of each head, and the null space's dimension without and with row sums, [3, layer, head]."""

    def compute() -> NDArray[Any]:
        found = trace.attention_identifiability()
        parts = (found.rank, found.dimension, found.dimension_with_sums)
        return _counted(numpy_of(torch.stack(parts)))

    def cost() -> float:
        if identifiability_is_known(trace.analyses):
            return 0.0
        return cost_of_identifiability(trace.analyses.sizes)

    yield Array(
        name="identifiability",
        compute=compute,
        cost=cost,
        hint="The identifiability of attention",
        call="trace.attention_identifiability()",
    )


# --- what is sent, and when -------------------------------------------------------------------------


def sent_later(trace: Trace, arrays: Iterable[Array]) -> list[str]:
    """The arrays that are sent only when they are shown.

    These are all maps, if those of negligible cost exceed the limit on bytes; costly maps that take
    long to compute or exceed what is left of the limit; and all other arrays that take long.
    """
    kinds = trace.kinds.values()
    quick = sum(size_of(trace, kind) for kind in kinds if kind.cost is None)
    left = MAX_INITIAL_BYTES - quick
    later = {kind.name for kind in kinds if left < 0}
    for kind in kinds:
        if kind.cost is not None:
            left -= size_of(trace, kind)
            if left < 0 or cost_of(trace, kind) > MAX_EAGER_FLOPS:
                later.add(kind.name)

    def waits(array: Array) -> bool:
        if array.kind is None:
            return array.cost() > MAX_EAGER_FLOPS
        # thumbnails of quick kinds are small and always there
        always = array.thumbnail and array.kind.cost is None
        return array.kind.name in later and not always

    return [array.name for array in arrays if waits(array)]


def kept_in_page(trace: Trace, first: str) -> list[str]:
    """The kinds in a page: the open one, and the others that are within the limits."""
    kept, left = [], MAX_PAGE_BYTES
    for kind in sorted(trace.kinds.values(), key=lambda kind: kind.name != first):
        size = size_of(trace, kind)
        if kind.name == first or (size <= left and cost_of(trace, kind) <= MAX_PAGE_FLOPS):
            kept.append(kind.name)
            left -= size
    return [name for name in trace.kinds if name in kept]


def _counted(numbers: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers in as few bytes as they need."""
    return numbers.astype(np.uint16 if numbers.max(initial=0) < 2**16 else np.uint32)


def numpy_of(tensor: Tensor) -> NDArray[Any]:
    """A tensor as an array that can be sent."""
    return tensor.detach().cpu().numpy()

"""The four terms at every layer: their cost beside a plain forward pass and the paper's own method.

    python benchmarks/terms.py

All variants run in one process and take turns, so that what else the machine does falls on all of
them alike; times are medians. Both targets count everything that trace.terms() does beyond the run
itself, its certificate included; the time counts the run too.

Memory is what the tensors that the terms made take up together at their peak, the result among
them. Scratch space inside a single operation of torch is not seen.
"""

from __future__ import annotations

import statistics
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import BertConfig, BertModel

import prosect
from prosect.analyses.terms import Terms
from prosect.anatomy.families import anatomies_of
from prosect.capture.run import Run, run
from prosect.engines.records import NormRecord, Record, WriteRecord

TOKENS = 128
SECONDS, ROUNDS = 8, 5
"""How long each model is measured, and how often at least."""
TIME_TARGET, MEMORY_TARGET = 1.5, 5.0


def main() -> None:
    minilm = prosect.load("minilm").model
    torch.manual_seed(0)
    base = BertModel(BertConfig()).eval()
    for name, model in {"MiniLM": minilm, "random BERT-base": base}.items():
        report(name, measure(model))


# --- the plain method ---------------------------------------------------------------------------


def products_of_norms(stream: Sequence[Record], last: int) -> Tensor:
    """i, h, f, c of one layer, as Mickus et al. (2022) write them, [term, token, d].

    Every sublayer's output is multiplied by G≥λ, the product of g/σ over all norms from λ on, which
    is computed anew for each. Post-norm models only.
    """
    norms = [record for record in stream if isinstance(record, NormRecord)][: 2 * last + 1]

    def G(first: int) -> Tensor:
        product = torch.ones_like(norms[0].std)
        for norm in norms[first - 1 :]:
            product = product * norm.gain / norm.std
        return product

    written = [record for record in stream if isinstance(record, WriteRecord)][: 2 * last + 1]
    i = h = f = c = torch.zeros_like(written[0].output)
    for place, record in enumerate(written, start=1):
        match record.term:
            case "input":
                i = i + G(place) * record.output
            case "attention":
                h = h + G(place) * (record.output - record.bias)
                c = c + G(place) * record.bias
            case _:
                f = f + G(place) * (record.output - record.bias)
                c = c + G(place) * record.bias
    for place, norm in enumerate(norms, start=1):
        c = c + G(place + 1) * norm.bias - G(place) * norm.mean
    return torch.stack([i, h, f, c])


def products_at_all_layers(stream: Sequence[Record], layers: int) -> Tensor:
    """[term, layer+1, token, d]."""
    return torch.stack([products_of_norms(stream, layer) for layer in range(layers + 1)], dim=1)


# --- time ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """Times of each variant, bytes of the terms and of the hidden states, and the largest gap."""

    times: dict[str, list[float]]
    peak: int
    hidden: int
    gap: float


FORWARD = "a plain forward pass"
TRACE = "a trace"
TERMS = "its terms, certified"
BOTH = "a trace and its terms"
PRODUCTS = "products of norms, all layers"
PRODUCTS_LAST = "products of norms, last layer"


def measure(model: Any) -> Measured:
    anatomy, _ = anatomies_of(model)
    layers = len(anatomy.blocks)
    ids = torch.randint(1000, 20_000, (1, TOKENS), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids}

    def trace() -> Run:
        return run(anatomy, inputs, [TOKENS])[0]

    def terms(of: Run) -> Terms:
        return Terms.of(of.stream, of.hidden, anatomy.terms, model.dtype)

    one = trace()
    with torch.no_grad():
        with Peak() as peak:
            split = terms(one)
        plain = products_at_all_layers(one.stream, layers)
        gap = float((split.values - plain).abs().max() / one.hidden.abs().max())
        del split, plain
        times = interleaved(
            {
                FORWARD: lambda: model(**inputs, output_hidden_states=True),
                TRACE: trace,
                TERMS: lambda: terms(one),
                BOTH: lambda: terms(trace()),
                PRODUCTS: lambda: products_at_all_layers(one.stream, layers),
                PRODUCTS_LAST: lambda: products_of_norms(one.stream, layers),
            }
        )
    return Measured(times, peak.bytes, one.hidden.nbytes, gap)


def interleaved(variants: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """The seconds that each variant took, time after time; all take turns."""
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for variant in variants.values():
        variant()  # warm up
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(taken[FORWARD]) < ROUNDS:
        for name, variant in variants.items():
            start = time.perf_counter()
            variant()
            taken[name].append(time.perf_counter() - start)
    return taken


# --- memory -------------------------------------------------------------------------------------


class Peak(TorchDispatchMode):
    """Counts the bytes of the storages that operations make while it is entered, as they live."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self._alive = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = {id_of(tensor) for tensor in tensors_in((args, kwargs))}
        output = func(*args, **(kwargs or {}))
        for tensor in tensors_in(output):
            if id_of(tensor) not in given | self._known:
                self._follow(tensor.untyped_storage())
        return output

    def _follow(self, storage: torch.UntypedStorage) -> None:
        place, size = storage.data_ptr(), storage.nbytes()
        self._known.add(place)
        self._alive += size
        self.bytes = max(self.bytes, self._alive)
        weakref.finalize(storage, self._forget, place, size)

    def _forget(self, place: int, size: int) -> None:
        self._known.discard(place)
        self._alive -= size


def id_of(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def tensors_in(tree: Any) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


# --- the table ----------------------------------------------------------------------------------


def report(name: str, measured: Measured) -> None:
    seconds = {name: statistics.median(times) for name, times in measured.times.items()}
    forward = seconds[FORWARD]
    print(f"\n{name}, {TOKENS} tokens, {torch.get_num_threads()} threads")
    for variant, taken in seconds.items():
        print(f"  {variant:<30}{taken * 1e3:9.2f} ms{taken / forward:8.2f} × a forward pass")
    times = seconds[PRODUCTS] / seconds[TERMS]
    print(f"  {PRODUCTS}: {times:.0f} × the terms; same values within {measured.gap:.0e}")
    print(f"  time   {verdict(seconds[BOTH] / forward, TIME_TARGET)} a forward pass")
    print(f"  memory {verdict(measured.peak / measured.hidden, MEMORY_TARGET)} the hidden states")
    least = min(measured.times[FORWARD])
    if forward > 1.3 * least:
        print(f"  (a busy machine: forward passes took from {least * 1e3:.0f} ms; run it again)")


def verdict(ratio: float, target: float) -> str:
    return f"{ratio:.2f} × ({'at most' if ratio <= target else 'MISSED:'} {target} ×)"


if __name__ == "__main__":
    main()

"""Hidden Token Attribution and effective attention beside the plain ways to compute them.

    python benchmarks/identifiability.py

All in one process, on MiniLM, with one thread, so that a busy machine slows all alike. The plain ways
to a Jacobian and to the projection of each prefix take long: they are measured on a sample, spread
over all layers, targets and prefixes, and scaled up to the whole, which the table marks with ~. The
project's own ways run in full.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

import prosect
from prosect.capture.run import Run, run
from prosect.engines.effective import coordinates, default_tolerance, effective_attention
from prosect.engines.records import AttentionRecord

TEXT = "The bank raised its rates, so we walked along the river bank to watch the ducks swim."
LONG = 512
PROBES = 16
COMPONENTS, BATCH = 4, 64
"""How many components the loop computes for each layer, and how many vmap takes at once."""
PREFIXES = 16


def main() -> None:
    torch.set_num_threads(1)
    lens = prosect.load("minilm")
    print("MiniLM, one thread; ~ is scaled up from a sample")
    with torch.no_grad():
        attribution(lens)
        effective(lens)


# --- attribution --------------------------------------------------------------------------------


def attribution(lens: prosect.Lens) -> None:
    trace = lens.trace(TEXT)
    n, d = trace.hidden[0].shape
    forward = median(lambda: lens.trace(TEXT), 5)
    loop, batched, gap = reverse(trace)
    estimate_s = median(lambda: lens.trace(TEXT).attribution(PROBES), 3)
    exact_s = seconds(lambda: trace.attribution())
    exact, estimate = trace.attribution(), trace.attribution(PROBES)
    off = float((estimate.values / exact.values - 1).abs().median())

    print(f"\nattribution, all layers and pairs, {n} tokens of {d} dimensions")
    print(f"  reverse mode, a loop       ~{loop:8.1f} s{loop / forward:10.0f} × a trace")
    print(f"  reverse mode, vmap of {BATCH:<5}~{batched:8.1f} s{batched / forward:10.0f} ×")
    print(f"  exact                       {exact_s:8.1f} s{exact_s / forward:10.0f} ×")
    print(f"  {PROBES} probes                   {estimate_s:8.1f} s{estimate_s / forward:10.0f} ×")
    print(f"  exact is {faster(loop / exact_s, 8)} than the loop")
    print(f"  exact is {faster(batched / exact_s, 3)} than vmap")
    print(f"  probes are {faster(loop / estimate_s, 100)} than the loop")
    print(f"  probes are {faster(batched / estimate_s, 40)} than vmap")
    print(f"  median relative error of the probes {off:.1%} (at most 4 %)")
    print(f"  rows of the Jacobian's norms by vmap and exact differ by {gap(exact.norms):.0e}")
    shares = ", ".join(f"{share:.3f}" for share in exact.own().tolist())
    print(f"  a token's own share by layer: {shares}")


def reverse(trace: prosect.Trace) -> tuple[float, float, Callable[[Tensor], float]]:
    """Seconds of a loop and of vmap, scaled up; and how far other norms are from vmap's."""
    model = trace.lens.model
    n, d = trace.hidden[0].shape
    model.set_attn_implementation("eager")
    with torch.enable_grad():
        x = trace.hidden[0].clone().requires_grad_()
        states, state = [], x[None]
        for layer in model.encoder.layer:
            output = layer(state)
            state = output[0] if isinstance(output, tuple) else output
            states.append(state[0])

        def one(layer: int, target: int, component: int) -> None:
            torch.autograd.grad(states[layer][target, component], x, retain_graph=True)

        def many(layer: int, target: int, first: int) -> Tensor:
            unit = torch.zeros(BATCH, d)
            unit[range(BATCH), range(first, first + BATCH)] = 1.0
            vector = states[layer][target]
            return torch.autograd.grad(vector, x, unit, retain_graph=True, is_grads_batched=True)[0]

        places = [(layer, (7 * layer + 3) % n) for layer in range(len(states))]
        calls = [(*place, c * (d // COMPONENTS)) for c in range(COMPONENTS) for place in places]
        one(*calls[0])
        many(*calls[0])
        loop = seconds(lambda: [one(*call) for call in calls]) / len(calls)
        batched = seconds(lambda: [many(*place, 0) for place in places]) / len(places) / BATCH
        layer, target = places[2]
        squares = sum(many(layer, target, f).square().sum((0, 2)) for f in range(0, d, BATCH))
    model.set_attn_implementation("sdpa")

    def gap(norms: Tensor) -> float:
        row = torch.as_tensor(squares).sqrt()
        return float(((norms[layer, target] - row).abs() / row).max())

    everything = len(states) * n * d
    return loop * everything, batched * everything, gap


# --- effective attention ------------------------------------------------------------------------


def effective(lens: prosect.Lens) -> None:
    found = attended(lens)
    heads = sum(len(layer.alpha) for layer in found)
    n, d = found[0].value.shape[1:]
    limit = default_tolerance(n, d, torch.float32)

    masked, values = lower(found), [coordinates(layer) for layer in found]
    back = torch.ones(LONG, LONG, dtype=torch.bool).tril()

    # layer by layer, none kept: memory new from the system would cost as much as the computation
    def ours() -> Iterator[Tensor]:
        for layer in found:
            yield effective_attention(layer.alpha, coordinates(layer), limit)[0]

    def ours_causal() -> Iterator[Tensor]:
        for a, layer in zip(masked, found, strict=True):
            yield effective_attention(a, coordinates(layer), limit, back)[0]

    def plain() -> Iterator[Tensor]:
        for layer in found:
            yield without_null(layer.alpha.double(), coordinates(layer), limit)

    def wide() -> Tensor:
        """Of T = V W_O as it is, [head, token, d]: one layer."""
        layer = found[0]
        weight = layer.weight.double().unflatten(0, (len(layer.alpha), -1))
        return without_null(layer.alpha.double(), layer.value.double() @ weight, limit)

    def prefix(row: int) -> list[Tensor]:
        seen = row + 1
        pairs = zip(masked, values, strict=True)
        return [without_null(a[:, row : row + 1, :seen], t[:, :seen], limit) for a, t in pairs]

    forward = median(lambda: minilm_run(lens), 3)
    ours_s, full_s = median(lambda: exhaust(ours()), 9), median(lambda: exhaust(plain()), 3)
    wide_s = seconds(wide) * len(found)
    causal_s = median(lambda: exhaust(ours_causal()), 2)
    rows = range(LONG // PREFIXES // 2, LONG, LONG // PREFIXES)
    prefixes_s = seconds(lambda: [prefix(row) for row in rows]) * LONG / PREFIXES
    precise = [
        effective_attention(layer.alpha.double(), coordinates(layer), limit)[0] for layer in found
    ]
    gap = max(float((a - b).abs().max()) for a, b in zip(precise, plain(), strict=True))
    triangle = list(ours_causal())
    causal_gap = max(
        float((a[:, row, : row + 1] - b[:, 0]).abs().max())
        for row in rows
        for a, b in zip(triangle, prefix(row), strict=True)
    )

    print(f"\neffective attention, {heads} heads, {n} tokens, float64")
    print(f"  a full SVD of the values              {full_s:8.2f} s{full_s / forward:9.1f} × a run")
    print(f"  a full SVD of T = V W_O itself       ~{wide_s:8.2f} s{wide_s / forward:9.1f} ×")
    print(f"  effective attention                   {ours_s:8.2f} s{ours_s / forward:9.1f} ×")
    print(
        f"  a full SVD a prefix                  ~{prefixes_s:8.2f} s{prefixes_s / forward:9.1f} ×"
    )
    print(f"  effective attention of a causal model {causal_s:8.2f} s{causal_s / forward:9.1f} ×")
    print(f"  {faster(full_s / ours_s, 10)} than that of the values, same to {gap:.0e}")
    print(f"  {faster(wide_s / ours_s, 10)} than that of T itself")
    print(
        f"  {faster(prefixes_s / causal_s, 10)} in causal models, same values to {causal_gap:.0e}"
    )


def without_null(a: Tensor, t: Tensor, tolerance: float) -> Tensor:
    """A − A N Nᵀ of every head, N the left null space of T from its full decomposition."""
    u, s, _ = torch.linalg.svd(t, full_matrices=True)
    null = u * (torch.arange(u.shape[-1]) >= (s > tolerance * s[:, :1]).sum(-1)[:, None])[:, None]
    return a - (a @ null) @ null.transpose(1, 2)


def lower(found: Sequence[AttentionRecord]) -> list[Tensor]:
    """Attention as a causal model might have it: the lower triangle, rows summing to 1."""
    triangles = [layer.alpha.double().tril() for layer in found]
    return [a / a.sum(-1, keepdim=True) for a in triangles]


def minilm_run(lens: prosect.Lens) -> Run:
    ids = torch.randint(1000, 20_000, (1, LONG), generator=torch.Generator().manual_seed(0))
    return run(lens.trace("a").anatomy, {"input_ids": ids}, [LONG])[0]


def attended(lens: prosect.Lens) -> list[AttentionRecord]:
    return minilm_run(lens).stream.attentions


# --- time ---------------------------------------------------------------------------------------


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def exhaust(results: Iterator[Tensor]) -> None:
    for _ in results:
        pass


def median(call: Callable[[], Any], times: int) -> float:
    call()  # warm up
    return statistics.median(seconds(call) for _ in range(times))


def faster(ratio: float, target: float) -> str:
    return f"{ratio:.1f} × faster ({'at least' if ratio >= target else 'MISSED:'} {target} ×)"


if __name__ == "__main__":
    main()

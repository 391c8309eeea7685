"""Maps and contributions: their cost beside a forward pass, one product, and the plain method.

    python benchmarks/maps.py

A random model of BERT-base's size. All variants of a table run in one process and take turns, so
that what else the machine does falls on all of them alike; times are medians. One thread, unless
another number is given (python benchmarks/maps.py 2): with more, every small operation waits for
the slowest core, and a busy machine times its waiting.

Memory is measured in processes of their own: the highest resident size while the maps are made,
less the resident size before, when the model is loaded and the text traced.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from prosect.anatomy.families import anatomies_of
from prosect.capture.run import Run, run
from prosect.engines.contributions import contributions, rest_of
from prosect.engines.records import LayerRecord, NormRecord
from prosect.engines.scopes import Scope, norm_map, scopes_of

TOKENS, LONG = 128, 512
SOURCES = 16
"""How many input tokens contributions are timed for; each is one pass, so the ratio is the same."""
BEFORE_TARGET, SCOPES_TARGET = 1.0, 1.6
LONG_TARGET, CONTRIBUTIONS_TARGET = 1.5, 1.0
FORWARD = "a plain forward pass"


def main() -> None:
    torch.set_grad_enabled(False)
    what = sys.argv[1] if len(sys.argv) > 1 else "1"
    torch.set_num_threads(int(what) if what.isdigit() else 1)
    if not what.isdigit():
        measure_memory(what)
        return
    traced = Traced.of(BertConfig(), TOKENS)
    print(f"random BERT-base, {TOKENS} tokens, {torch.get_num_threads()} threads")
    before_feed_forward(traced)
    all_scopes(traced)
    whole_model(traced)
    memory()


@dataclass(frozen=True)
class Traced:
    """A random BERT, and one run of it."""

    model: Any
    inputs: dict[str, Tensor]
    run: Run

    @classmethod
    def of(cls, config: BertConfig, tokens: int) -> Traced:
        torch.manual_seed(0)
        model = BertModel(config).eval()
        inputs = {"input_ids": torch.randint(1000, 20_000, (1, tokens))}
        return cls(model, inputs, run(anatomies_of(model)[0], inputs, [tokens])[0])

    def layers(self) -> list[LayerRecord]:
        return self.run.stream.layers

    def forward(self) -> None:
        self.model(**self.inputs)


# --- maps before the feed-forward -----------------------------------------------------------------


def before_feed_forward(traced: Traced) -> None:
    layers = traced.layers()

    def ours() -> list[tuple[Tensor, dict[str, Scope]]]:
        return [(norm_map(x.attention), scopes_of(x, feed_forward=False)) for x in layers]

    def plain() -> list[dict[str, Tensor]]:
        return [plain_before_feed_forward(x) for x in layers]

    agree(
        [{"norm": norm, **values_of(scopes)} for norm, scopes in ours()],
        plain(),
    )
    name = "norm, ATTN, ATTNRES, ATB, all layers"
    seconds = interleaved({FORWARD: traced.forward, name: ours, "  n × n × d vectors": plain}, 3)
    table(seconds, FORWARD)
    verdict("time", seconds[name] / seconds[FORWARD], BEFORE_TARGET, "a forward pass")


def plain_before_feed_forward(layer: LayerRecord) -> dict[str, Tensor]:
    """The same with a vector for every head and pair, as the formulas are written."""
    one = layer.attention
    heads = len(one.alpha)
    W_O = one.output_map.weight(one.value).unflatten(0, (heads, -1))
    f = one.value @ W_O  # [head, source, d]
    per_head, parts = [], torch.zeros(len(layer.x), *layer.x.shape)
    for alpha, sent in zip(one.alpha, f, strict=True):
        vectors = alpha[:, :, None] * sent
        per_head.append(vectors.norm(dim=-1))
        parts += vectors
    found = {"norm": torch.stack(per_head), "ATTN": parts.norm(dim=-1)}
    parts.diagonal().add_(layer.x.T)
    found["ATTNRES"] = parts.norm(dim=-1)
    found["ATB"] = through_norm(parts, layer.following[0]).norm(dim=-1)
    return found


def through_norm(parts: Tensor, norm: Any) -> Tensor:
    """γ ⊙ (part − mean(part)) / σ(whole), [target, source, d]."""
    assert isinstance(norm, NormRecord)
    assert norm.gain is not None
    return norm.gain * (parts - parts.mean(-1, keepdim=True)) / norm.std[:, None]


# --- all scopes of a layer ------------------------------------------------------------------------


def all_scopes(traced: Traced) -> None:
    layer = traced.layers()[5]
    n, d_ff = layer.feed_forward.u.shape
    neurons = torch.randn(n * n, d_ff)
    W_2 = layer.feed_forward.output_map.weight(neurons)

    def ours() -> dict[str, Scope]:
        return scopes_of(layer)

    def plain() -> dict[str, Tensor]:
        return plain_scopes(layer)

    expected = plain()
    expected.pop("norm")
    agree([values_of(ours())], [expected])
    product, name = "n² rows through W2", "all scopes of one layer"
    seconds = interleaved(
        {
            product: lambda: neurons @ W_2,
            name: ours,
            "  n² rows through W1 and W2": plain,
        },
        3,
    )
    table(seconds, product)
    verdict("time", seconds[name] / seconds[product], SCOPES_TARGET, "the product")


def plain_scopes(layer: LayerRecord) -> dict[str, Tensor]:
    """A vector for every pair, through both weight matrices."""
    found = plain_before_feed_forward(layer)
    one, fed = layer.attention, layer.feed_forward
    f = one.value @ one.output_map.weight(one.value).unflatten(0, (len(one.alpha), -1))
    parts = torch.einsum("hij,hjd->ijd", one.alpha, f)
    parts.diagonal().add_(layer.x.T)
    parts = through_norm(parts, layer.following[0])
    theta = 0.5 * (1 + torch.erf(fed.u / 2**0.5))
    after = ((parts @ fed.inner.weight(parts)) * theta[:, None]) @ fed.output_map.weight(parts)
    found["ATBFF"] = after.norm(dim=-1)
    after = after + parts
    found["ATBFFRES"] = after.norm(dim=-1)
    found["ATBFFRESLN"] = through_norm(after, layer.last_norm).norm(dim=-1)
    return found


# --- contributions --------------------------------------------------------------------------------


def whole_model(traced: Traced) -> None:
    name = f"contributions of {SOURCES} tokens, all layers"

    def ours() -> None:
        for _ in contributions(traced.run.stream, range(SOURCES)):
            pass

    seconds = interleaved({FORWARD: traced.forward, name: ours}, 3)
    table(seconds, FORWARD)
    times = seconds[name] / SOURCES / seconds[FORWARD]
    print(f"  time   {times:.2f} × as many forward passes as there are tokens")


# --- memory ---------------------------------------------------------------------------------------


def memory() -> None:
    print("\npeak memory above the model and the trace, in processes of their own")
    for what, target in (("scopes", LONG_TARGET), ("contributions", CONTRIBUTIONS_TARGET)):
        command = [sys.executable, str(Path(__file__)), what]
        taken = float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        name = {
            "scopes": f"all scopes of one layer, {LONG} tokens",
            "contributions": f"contributions, {TOKENS} tokens, 12 layers",
        }[what]
        print(f"  {name:<44}{taken:8.2f} GB ({'under' if taken < target else 'MISSED:'} {target})")


def measure_memory(what: str) -> None:
    config = BertConfig(num_hidden_layers=1) if what == "scopes" else BertConfig()
    traced = Traced.of(config, LONG if what == "scopes" else TOKENS)
    layers = traced.layers()
    Path("/proc/self/clear_refs").write_text("5")  # forget the highest resident size so far
    before = status("VmRSS")
    if what == "scopes":
        scopes_of(layers[0])
    else:
        rest_of(traced.run.stream)
        blocks = contributions(traced.run.stream, range(2 * SOURCES))
        for _sources, states in blocks:
            del states
    print((status("VmHWM") - before) / 1e6)


def status(name: str) -> int:
    """An entry of this process's status, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


# --- timing and printing --------------------------------------------------------------------------


def interleaved(variants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The median seconds of each variant; all take turns, and the first may still warm up."""
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, variant in variants.items():
            start = time.perf_counter()
            variant()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def table(seconds: dict[str, float], unit: str) -> None:
    print()
    for name, taken in seconds.items():
        print(f"  {name:<44}{taken * 1e3:9.1f} ms{taken / seconds[unit]:8.2f} × {unit}")


def verdict(what: str, times: float, target: float, unit: str) -> None:
    print(
        f"  {what}   {times:.2f} × {unit} ({'at most' if times <= target else 'MISSED:'} {target} ×)"
    )


def agree(ours: Sequence[dict[str, Tensor]], plain: Sequence[dict[str, Tensor]]) -> None:
    """Both ways must give the same maps before it means anything which is faster."""
    for a, b in zip(ours, plain, strict=True):
        for name, values in b.items():
            torch.testing.assert_close(a[name], values, rtol=1e-3, atol=1e-4)


def values_of(scopes: dict[str, Scope]) -> dict[str, Tensor]:
    return {name: scope.values for name, scope in scopes.items()}


if __name__ == "__main__":
    main()

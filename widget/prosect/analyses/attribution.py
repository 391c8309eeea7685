"""Hidden Token Attribution of a trace: exact or estimated, and what it says of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm.auto import tqdm

from prosect.capture.run import Run
from prosect.engines import jacobian as engine
from prosect.engines.records import AttentionRecord, StateRecord
from prosect.engines.tangents import Point, merged, points, push, written_tangent
from prosect.errors import ProsectError, UnsupportedModelError
from prosect.validation import listed, whole_number

MATRIX_NUMBERS = 2**28
"""How many numbers the matrices of tokens may take, where there are enough tangents for them."""
BATCH_NUMBERS = 2**21
"""How many numbers the widest activations of a batch of tangents may take: what a cache holds."""
PATIENCE = 3.0
"""After how many seconds a bar appears by itself."""


@dataclass(frozen=True, eq=False, repr=False)
class Attribution:
    """How much each input token moves each hidden vector (Brunner et al. 2020, section 5).

    Attributes
    ----------
    values
        [layer, target, source], c_ij = |∂e_j/∂x_i|_F / Σ_k |∂e_j/∂x_k|_F after each of ``layers``:
        shares that sum to 1 over sources.
    norms
        [layer, target, source], |∂e_j/∂x_i|_F themselves.
    standard_error
        The same shape as ``values``: of each share, to first order; 0 where it is exact.
    layers
        Which layers, from 0: the vectors are ``hidden[layer + 1]``.
    targets
        The positions of the vectors.
    probes
        How many random probes a source token; None where exact.
    start
        The hidden state whose tokens are the sources.
    times_input
        Whether it is of the change along the input vectors.
    head
        (layer, head) where it is of what one head writes; None: of the hidden vectors.
    """

    values: Float[Tensor, "layer target source"]
    norms: Float[Tensor, "layer target source"]
    standard_error: Float[Tensor, "layer target source"]
    layers: list[int]
    targets: list[int]
    probes: int | None
    start: int
    times_input: bool = False
    head: tuple[int, int] | None = None

    def __repr__(self) -> str:
        how = "exact" if self.probes is None else f"{self.probes} probes"
        how += ", times input" if self.times_input else ""
        how += "" if self.head is None else f", head {self.head[1]} of layer {self.head[0]}"
        layers, targets, sources = self.values.shape
        return f"Attribution({how}: layer {layers}, target {targets}, source {sources})"

    def at(self, targets: Sequence[int]) -> Attribution:
        """Of some targets only, given by their positions.

        Raises
        ------
        ProsectError
            If one of them is not among the targets.
        """
        chosen = listed(targets, "targets")
        for target in chosen:
            if target not in self.targets:
                known = ", ".join(map(str, self.targets))
                raise ProsectError(f"There is no target {target} here: choose from {known}.")
        places = [self.targets.index(target) for target in chosen]
        return replace(
            self,
            values=self.values[:, places],
            norms=self.norms[:, places],
            standard_error=self.standard_error[:, places],
            targets=chosen,
        )

    def after(self, layers: Sequence[int]) -> Attribution:
        """After some of its layers only, given by their numbers."""
        rows = [self.layers.index(layer) for layer in layers]
        return replace(
            self,
            values=self.values[rows],
            norms=self.norms[rows],
            standard_error=self.standard_error[rows],
            layers=list(layers),
        )

    def own(self) -> Float[Tensor, "layer"]:
        """The share of the token's own input in its vector, mean over targets."""
        return (self.values * (self._distance() == 0)).sum(-1).mean(-1)

    def by_distance(self, furthest: int = 10) -> Float[Tensor, "layer distance"]:
        """The share of all sources at each distance, 0 to ``furthest``, mean over targets.

        Both sides together; the last column holds all that are at least that far.

        Raises
        ------
        ProsectError
            If the distance is no whole number from 0.
        """
        if whole_number(furthest, "furthest") < 0:
            raise ProsectError(f"Distances count from 0, not {furthest}.")
        distance = self._distance().clamp_max(furthest)
        return torch.stack(
            [(self.values * (distance == d)).sum(-1).mean(-1) for d in range(furthest + 1)], dim=-1
        )

    def overtaken(self) -> Float[Tensor, "layer"]:
        """The share of tokens that are not the largest contributor to their own vector."""
        own = torch.tensor(self.targets, device=self.values.device)
        return (self.values.argmax(-1) != own).double().mean(-1)

    def local(self, width: int = 2) -> Float[Tensor, "layer"]:
        """The share of the neighbours at most ``width`` away, of all that the others contribute."""
        distance = self._distance()
        near = (self.values * ((distance > 0) & (distance <= width))).sum(-1)
        others = (self.values * (distance > 0)).sum(-1)
        return (near / others.clamp_min(torch.finfo(others.dtype).tiny)).mean(-1)

    def _distance(self) -> Int[Tensor, "target source"]:
        targets = torch.tensor(self.targets, device=self.values.device)
        sources = torch.arange(self.values.shape[-1], device=self.values.device)
        return (targets[:, None] - sources).abs()


def attribute(
    run: Run,
    *,
    probes: int | None,
    layers: Sequence[int],
    start: int,
    times_input: bool,
    head: tuple[int, int] | None,
    seed: int,
    progress: bool | None,
) -> Attribution:
    """Compute the attribution of a run; see :meth:`prosect.Trace.attribution`."""
    if head is not None and head[0] < start:
        raise ProsectError(f"Layer {head[0]} comes before state {start}: choose a later head.")
    if any(record.scores is None for record in run.stream.attentions):
        raise UnsupportedModelError(
            "The attention scores of this architecture have no derivative here yet: "
            "use trace.map('contribution'), which needs none."
        )
    walked, x = points(run.stream), run.hidden[start]
    n, d = x.shape
    first = next(i for i, point in enumerate(walked) if _is_state(point, start))
    if head is None:
        end = next(i for i, point in enumerate(walked) if _is_state(point, max(layers) + 1))
        path, reached = walked[first + 1 : end + 1], range(start, max(layers) + 1)
    else:
        end = next(i for i, point in enumerate(walked) if _attends_in(point, head[0]))
        path, reached, layers = walked[first + 1 : end], [head[0]], [head[0]]

    def carry(dx: Tensor) -> Iterator[Tensor]:
        if head is None:
            return (moved for _, moved in push(dx, path))
        return iter([_through_head(dx, path, walked[end], head[1])])

    observed = len(reached)
    widest = max(
        n * d,
        *(record.alpha.numel() for record in run.stream.attentions),
        *(record.neurons.numel() for record in run.stream.feed_forwards),
    )
    batch = max(1, BATCH_NUMBERS // widest)
    delay = PATIENCE if progress is None else 0
    tangents = n if times_input else n * (d if probes is None else probes)
    with tqdm(total=tangents, unit="tangent", disable=progress is False, delay=delay) as bar:
        if probes is None and not times_input and n > 2:
            path = merged(path, MATRIX_NUMBERS, bar.update)
        if times_input:
            squares = engine.along_input(x, carry, observed, batch, bar.update)
        elif probes is None:
            squares = engine.exact(x, carry, observed, batch, bar.update)
        else:
            generator = torch.Generator().manual_seed(seed)
            squares = engine.estimated(x, carry, observed, batch, bar.update, probes, generator)
    share, error = engine.shares(squares)
    rows = [list(reached).index(layer) for layer in layers]
    return Attribution(
        values=share[rows].to(x.dtype),
        norms=squares.values.sqrt()[rows].to(x.dtype),
        standard_error=error[rows].to(x.dtype),
        layers=list(layers),
        targets=list(range(n)),
        probes=None if times_input else probes,
        start=start,
        times_input=times_input,
        head=head,
    )


def _is_state(point: Point, layer: int) -> bool:
    return isinstance(point.record, StateRecord) and point.record.index == layer


def _attends_in(point: Point, layer: int) -> bool:
    record = point.record
    return (
        isinstance(record, AttentionRecord) and record.layer == layer and record.term == "attention"
    )


def _through_head(dx: Tensor, path: Sequence[Point], at: Point, head: int) -> Tensor:
    """The change of what one head writes."""
    assert isinstance(at.record, AttentionRecord)
    *_, (_, moved) = [(0, dx), *push(dx, path)]
    return written_tangent(moved, at.x, at.record, head)

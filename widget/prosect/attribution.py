"""Hidden Token Attribution of a trace: exact or estimated, and what it says of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm.auto import tqdm

from prosect.anatomy.stream import Attended, Embedded, Fed, State, Wrote
from prosect.capture import Run
from prosect.engines import attribution as engine
from prosect.engines.tangents import Point, merged, points, push, written
from prosect.errors import ProsectError, UnsupportedModelError

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
    """

    values: Float[Tensor, "layer target source"]
    norms: Float[Tensor, "layer target source"]
    standard_error: Float[Tensor, "layer target source"]
    layers: list[int]
    targets: list[int]
    probes: int | None
    start: int

    def __repr__(self) -> str:
        how = "exact" if self.probes is None else f"{self.probes} probes"
        layers, targets, sources = self.values.shape
        return f"Attribution({how}: layer {layers}, target {targets}, source {sources})"

    def at(self, targets: Sequence[int]) -> Attribution:
        """Of some targets only, given by their positions."""
        places = [self.targets.index(target) for target in targets]
        return replace(
            self,
            values=self.values[:, places],
            norms=self.norms[:, places],
            standard_error=self.standard_error[:, places],
            targets=list(targets),
        )

    def own(self) -> Float[Tensor, "layer"]:
        """The share of the token's own input in its vector, mean over targets."""
        return (self.values * (self._distance() == 0)).sum(-1).mean(-1)

    def by_distance(self, furthest: int = 10) -> Float[Tensor, "layer distance"]:
        """The share of all sources at each distance, 0 to ``furthest``, mean over targets.

        Both sides together; the last column holds all that are at least that far.
        """
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
    parallel: Sequence[bool],
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
    details = [record.detail for record in run.stream if isinstance(record, Wrote)]
    if not layers:
        raise ProsectError("There are no layers: name at least one, or leave layers out.")
    if head is not None and head[0] < start:
        raise ProsectError(f"Layer {head[0]} comes before state {start}: choose a later head.")
    if any(isinstance(detail, Attended) and detail.scores is None for detail in details):
        raise UnsupportedModelError(
            "The attention scores of this architecture have no derivative here yet: "
            "use trace.map('contribution'), which needs none."
        )
    walked, x = points(run.stream, parallel), run.hidden[start]
    n, d = x.shape
    first = next(i for i, point in enumerate(walked) if _is_state(point, start))
    if head is None:
        end = next(i for i, point in enumerate(walked) if _is_state(point, max(layers) + 1))
        path, reached = walked[first + 1 : end + 1], range(start, max(layers) + 1)
    else:
        end = next(i for i, point in enumerate(walked) if _attends_in(point, head[0] + 1))
        path, reached, layers = walked[first + 1 : end], [head[0]], [head[0]]

    def carry(dx: Tensor) -> Iterator[Tensor]:
        if head is None:
            return (moved for _, moved in push(dx, path))
        return iter([_through_head(dx, path, walked[end], head[1])])

    observed = len(reached)
    widest = max(n * d, *(_width(detail) for detail in details))
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
    )


def _width(detail: Embedded | Attended | Fed | None) -> int:
    """How many numbers of a tangent a sublayer holds at once."""
    match detail:
        case Attended():
            return detail.alpha.numel()
        case Fed():
            return detail.neurons.numel()
    return 0


def _is_state(point: Point, layer: int) -> bool:
    return isinstance(point.record, State) and point.record.layer == layer


def _attends_in(point: Point, layer: int) -> bool:
    record = point.record
    return isinstance(record, Wrote) and record.layer == layer and record.term == "attention"


def _through_head(dx: Tensor, path: Sequence[Point], at: Point, head: int) -> Tensor:
    """The change of what one head writes."""
    assert isinstance(at.record, Wrote)
    *_, (_, moved) = [(at.record.layer, dx), *push(dx, path)]
    return written(moved, at.x, at.record, head)

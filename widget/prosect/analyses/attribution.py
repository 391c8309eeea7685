"""Hidden Token Attribution, exact or estimated, and its summary measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm.auto import tqdm

from prosect.analyses.cache import Analyses
from prosect.analyses.certificate import agreed, relative_gap
from prosect.analyses.maps import Options, Values
from prosect.capture.derivative import derivative
from prosect.capture.run import Run
from prosect.engines import jacobian as engine
from prosect.engines.records import AttentionRecord, StateRecord
from prosect.engines.tangents import Point, merged, points, push, written_tangent
from prosect.errors import ProsectError
from prosect.modes import in_plain_arithmetic
from prosect.validation import listed, whole_number

MATRIX_NUMBERS = 2**28
"""How many numbers the matrices of tokens may take, where there are enough tangents for them."""
BATCH_NUMBERS = 2**21
"""How many numbers the widest activations of a batch of tangents may take: what a cache holds."""
DIRECTIONS = 2
"""How many random directions the certificate compares derivatives along."""
BAR_DELAY = 3.0
"""After how many seconds a progress bar appears by itself."""


@in_plain_arithmetic
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
        The number of random probes per source token; None if exact.
    start
        The hidden state whose tokens are the sources.
    error
        The certificate: the largest |J u − J' u| / |J' u| over layers and random directions u, with J
        the derivative that this is computed from and J' that of the model itself.
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
    error: float
    times_input: bool = False
    head: tuple[int, int] | None = None

    def __repr__(self) -> str:
        how = "exact" if self.probes is None else f"{self.probes} probes"
        how += ", times input" if self.times_input else ""
        how += "" if self.head is None else f", head {self.head[1]} of layer {self.head[0]}"
        layers, targets, sources = self.values.shape
        shape = f"layer {layers}, target {targets}, source {sources}"
        return f"Attribution({how}: {shape}, error {self.error:.1e})"

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
                raise ProsectError(f"targets must be among {known}, got {target}.")
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
            If the distance is not an integer of at least 0.
        """
        if whole_number(furthest, "furthest") < 0:
            raise ProsectError(f"furthest must be at least 0, got {furthest}.")
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


def attribution(
    analyses: Analyses,
    probes: int | None = None,
    layers: Sequence[int] | None = None,
    targets: Sequence[int] | None = None,
    *,
    start: int = 0,
    times_input: bool = False,
    head: tuple[int, int] | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Attribution:
    """Hidden Token Attribution of a run, computed once and kept.

    c_ij = |∂e_j/∂x_i|_F / Σ_k |∂e_j/∂x_k|_F with nothing frozen: softmax, norms and activations move
    too. Causal models have zeros right of the diagonal.

    Parameters
    ----------
    probes
        None: exact, with one derivative per dimension of each source token. Else the number of random
        probes per token of an estimate with standard errors.
    layers
        After which layers, from 0; all by default. Not with a head, which writes in its own.
    targets
        The positions of the vectors; all by default.
    start
        The hidden state whose tokens are changed: 0 is the input embeddings.
    times_input
        The change along the input vector itself, so that its size counts; exact, without probes.
    head
        (layer, head): of what one head writes, instead of the hidden vectors. Where a norm follows
        attention before it is added (Gemma 2, OLMo 2), through that norm, with its derivative at
        what all heads of the layer write together.
    seed
        Of the probes.
    progress
        Whether to show a bar with the time left; by default if it takes more than a few seconds. It
        can be interrupted.

    Raises
    ------
    UnsupportedModelError
        If the architecture's scores have no derivative here (DeBERTa).
    ProsectError
        If an argument is out of range.
    """
    if probes is not None and times_input:
        raise ProsectError("times_input needs no probes: it is exact. Leave one of them out.")
    if probes is not None and whole_number(probes, "probes") < 2:
        raise ProsectError(
            f"probes must be at least 2, which a standard error needs, got {probes}."
        )
    count = analyses.sizes.layers
    if not 0 <= whole_number(start, "start") < count:
        raise ProsectError(f"start must be a hidden state from 0 to {count - 1}, got {start}.")
    if layers is not None and head is not None:
        raise ProsectError("head and layers cannot both be given: leave one of them out.")
    wanted = list(range(start, count)) if layers is None else listed(layers, "layers")
    if not wanted:
        raise ProsectError("layers must have at least one layer, got an empty list.")
    for layer in wanted:
        if not start <= layer < count:
            raise ProsectError(f"layers must be from {start} to {count - 1}, got {layer}.")
    if head is not None:
        if isinstance(head, str) or not hasattr(head, "__len__") or len(head) != 2:
            raise ProsectError(f"head must be a layer and a head, such as (3, 5), got {head!r}.")
        head = analyses.head(*head)
    seed = whole_number(seed, "seed")
    asked = (probes, start, times_input, head, seed)

    def compute() -> Attribution:
        complete = analyses.known(("attribution", asked, tuple(range(start, count))))
        if complete is not None:
            return complete.after(wanted)
        return attribute(
            analyses.run,
            error=certificate(analyses, start),
            probes=probes,
            layers=wanted,
            start=start,
            times_input=times_input,
            head=head,
            seed=seed,
            progress=progress,
        )

    found = analyses.once(("attribution", asked, tuple(wanted)), compute)
    return found if targets is None else found.at(analyses.positions(targets))


def attribution_map(analyses: Analyses, _: Options, *, probes: int | None = None) -> Values:
    """The shares of all layers, as a map."""
    found = attribution(analyses, probes)
    return Values(found.values, found.error)


def certificate(analyses: Analyses, start: int) -> float:
    """How far the engine's derivative is from that of the model itself; computed once.

    Along a few random changes of all tokens of ``hidden[start]``, relative to the length of what they
    lead to in each later hidden state. The model's derivative is taken in forward mode through its
    own modules, at the cost of a few forward passes.

    Raises
    ------
    ReconstructionError
        If it is too far.
    StaleTraceError
        If the model is no longer what it was in the run.
    UnsupportedModelError
        If the scores of the architecture have no derivative here.
    """

    def compute() -> float:
        run = analyses.run
        x = run.hidden[start]
        generator = torch.Generator().manual_seed(0)
        directions = torch.randn(DIRECTIONS, *x.shape, generator=generator, dtype=torch.float64)
        walked = points(run.stream)
        first = next(i for i, point in enumerate(walked) if _is_state(point, start))
        changes = [dx for _, dx in push(directions.to(x), walked[first + 1 :])]
        expected = derivative(analyses.anatomy, run, start, directions.to(x))
        gap = relative_gap(torch.stack(changes, dim=1).flatten(-2), expected.flatten(-2))
        return agreed(gap, "The derivative", analyses.dtype)

    return analyses.once(("derivative", start), compute)


def attribute(
    run: Run,
    *,
    error: float,
    probes: int | None,
    layers: Sequence[int],
    start: int,
    times_input: bool,
    head: tuple[int, int] | None,
    seed: int,
    progress: bool | None,
) -> Attribution:
    """Compute the attribution of a run, whose certificate is ``error``; see :func:`attribution`."""
    if head is not None and head[0] < start:
        raise ProsectError(f"The layer of head must be at least start = {start}, got {head[0]}.")
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
    delay = BAR_DELAY if progress is None else 0
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
    share, standard_error = engine.shares(squares)
    rows = [list(reached).index(layer) for layer in layers]
    return Attribution(
        values=share[rows].to(x.dtype),
        norms=squares.values.sqrt()[rows].to(x.dtype),
        standard_error=standard_error[rows].to(x.dtype),
        layers=list(layers),
        targets=list(range(n)),
        probes=None if times_input else probes,
        start=start,
        error=error,
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

"""One forward pass, recorded: the stream's records, the hidden states and the attention of each text.

Forward hooks on the modules that the anatomy names see what enters each norm and what each sublayer
writes; the tap sees the attention. The model is left as it was found, whatever happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from prosect.anatomy.vocabulary import (
    Anatomy,
    Attention,
    FeedForward,
    Norm,
    Projection,
    Step,
    Term,
)
from prosect.capture.tap import Weighed, Weights, tapped
from prosect.capture.tensors import ModelTensors, tensors_outside_layers
from prosect.capture.weights import (
    Names,
    affine_of,
    lift,
    names_of,
    norm_rule_of,
    owned,
    scores_of,
)
from prosect.engines.records import (
    AttentionRecord,
    EmbeddingRecord,
    FeedForwardRecord,
    NormRecord,
    ProjectionRecord,
    StateRecord,
    Stream,
    StreamStep,
)
from prosect.errors import ProsectError, UnsupportedModelError
from prosect.modes import plain_arithmetic

Side = Literal["input", "output"]
ONE_AT_A_TIME = RLock()
"""Held while hooks or the tap are on a model: they belong to one run."""


@dataclass(frozen=True)
class Run:
    """Everything one forward pass computed for one text, and what it takes to run it again.

    ``inputs`` are the arguments of the model for this text, [1, token], without padding; ``tensors``
    are those of the stack that was run, ``whole`` those of the model that it is a part of, its head
    included, and ``dtype`` is their precision.
    """

    hidden: Float[Tensor, "layer+1 token d"]
    attention: Float[Tensor, "layer head target source"]
    cross_attention: Float[Tensor, "layer head target source"] | None
    stream: Stream
    inputs: Mapping[str, Tensor]
    tensors: ModelTensors
    whole: ModelTensors
    dtype: torch.dtype


def run(
    anatomy: Anatomy,
    inputs: Mapping[str, Any],
    lengths: Sequence[int],
    source_lengths: Sequence[int] | None = None,
    *,
    model: Any = None,
) -> list[Run]:
    """Run the model on a batch of texts and keep, text by text, what the engines need.

    Parameters
    ----------
    anatomy
        What to run.
    inputs
        The arguments of its ``base``, padded on the right.
    lengths
        How many tokens each text has.
    source_lengths
        The same for the texts that cross-attention looks at.
    model
        The model that the anatomy is a part of; by default its ``base``.

    Raises
    ------
    UnsupportedModelError
        If a layer's attention cannot be seen.
    ProsectError
        If a hidden state is not finite; the message names the first such layer.
    """
    seen = _Seen()
    with ExitStack() as stack:
        stack.enter_context(ONE_AT_A_TIME)
        stack.enter_context(plain_arithmetic())
        stack.enter_context(evaluating(anatomy.base))
        stack.enter_context(seen.watching(anatomy))
        stack.enter_context(seen.tapping(anatomy))
        options: dict[str, Any] = {"use_cache": False} if anatomy.causal else {}
        if not anatomy.blocks[0].attention.registry:
            options["output_attentions"] = True
        output = anatomy.base(**inputs, **options, return_dict=True)
        if anatomy.outlet is None:
            seen.add(anatomy.base, "output", output.last_hidden_state)
        texts, width = inputs["input_ids"].shape
        device = anatomy.words.device
        batch = _Batch(texts, width, lengths, source_lengths or lengths, device)
        names, tensors = names_of(anatomy.base), ModelTensors(anatomy.base)
        whole = _whole(anatomy, anatomy.base if model is None else model)
        return [
            _read(
                anatomy,
                _Text(seen, batch, number, names),
                batch.inputs_of(number, inputs),
                tensors,
                whole,
            )
            for number in range(texts)
        ]


@dataclass
class _Seen:
    """What the watched modules received or returned, in the order of their calls.

    A list a module, because some models use one module in several layers.
    """

    tensors: dict[tuple[nn.Module, Side], list[Tensor]] = field(default_factory=dict)
    weights: Weights = field(default_factory=dict)
    tables: dict[nn.Module, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def add(self, module: nn.Module, side: Side, tensor: Tensor) -> None:
        self.tensors.setdefault((module, side), []).append(tensor)

    @contextmanager
    def watching(self, anatomy: Anatomy) -> Iterator[None]:
        with ExitStack() as stack:
            for module, side in _watched(anatomy):
                if side == "input":
                    handle = module.register_forward_pre_hook(self._keep_input, with_kwargs=True)
                else:
                    handle = module.register_forward_hook(self._keep_output)
                stack.callback(handle.remove)
            for block in anatomy.blocks:
                core = block.attention.core
                handle = core.register_forward_pre_hook(self._keep_tables, with_kwargs=True)
                stack.callback(handle.remove)
            yield

    @contextmanager
    def tapping(self, anatomy: Anatomy) -> Iterator[None]:
        if anatomy.blocks[0].attention.registry:
            with tapped(anatomy.base) as self.weights:
                yield
            return
        with ExitStack() as stack:
            for core in {block.attention.core for block in anatomy.blocks}:
                stack.callback(core.register_forward_hook(self._keep_weights).remove)
            yield

    def _keep_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.add(module, "input", args[0] if args else next(iter(kwargs.values())))

    def _keep_tables(self, module: nn.Module, _: object, kwargs: dict[str, Any]) -> None:
        if kwargs.get("position_embeddings") is not None:
            self.tables[module] = kwargs["position_embeddings"]

    def _keep_output(self, module: nn.Module, _: object, output: Any) -> None:
        self.add(module, "output", output[0] if isinstance(output, tuple) else output)

    def _keep_weights(self, module: nn.Module, _: object, output: Any) -> None:
        self.weights.setdefault(module, []).append(Weighed(output[1], None))


def _watched(anatomy: Anatomy) -> set[tuple[nn.Module, Side]]:
    watched: set[tuple[nn.Module, Side]] = {(block.module, "input") for block in anatomy.blocks}
    watched |= {(embedding.module, "output") for embedding in anatomy.embeddings}
    if anatomy.outlet is not None:
        watched.add((anatomy.outlet, "input"))
    for step in anatomy.steps():
        if isinstance(step, Norm):
            watched.add((step.module, "input"))
        elif isinstance(step, Projection):
            watched.add((step.dense.module, "input"))
        else:
            watched |= {(step.output.module, "input"), (step.output.module, "output")}
            watched |= {
                (norm.module, "input") for norm in (step.before, step.after) if norm is not None
            }
        if isinstance(step, FeedForward):
            watched |= {(step.inner.module, "input"), (step.inner.module, "output")}
            watched |= {(step.gate.module, "output")} if step.gate is not None else set()
        if isinstance(step, Attention):
            watched |= {(step.value.module, "output"), (_reader(step), "input")}
            if step.term == "source" and step.scores is not None:
                watched.add((step.scores.key.module, "output"))
    return watched


def _reader(attention: Attention) -> nn.Module:
    """The module that reads what the queries are made of."""
    return (attention.value if attention.scores is None else attention.scores.query).module


class _Text:
    """One text of the batch: what was seen of it, call by call, without its padding."""

    def __init__(self, seen: _Seen, batch: _Batch, number: int, names: Names) -> None:
        self._seen, self._batch, self._number = seen, batch, number
        self.names = names
        self._calls: dict[object, int] = {}
        self._prepared: dict[nn.Module, NormRecord] = {}

    @property
    def device(self) -> torch.device:
        return self._batch.device

    def next(self, module: nn.Module, side: Side, *, of_source: bool = False) -> Tensor:
        """What the module received or returned at its next call, [token, d], lifted."""
        call = self._count((module, side))
        return self._cut(self._seen.tensors[module, side][call], of_source)

    def first(self, module: nn.Module, side: Side) -> Tensor | None:
        """The same for its first call, if there was one."""
        calls = self._seen.tensors.get((module, side))
        return self._cut(calls[0]) if calls else None

    def tables(self, core: nn.Module) -> tuple[Tensor, Tensor] | None:
        """The rotary positions that the module was given."""
        found = self._seen.tables.get(core)
        return None if found is None else (self._cut(found[0]), self._cut(found[1]))

    def weights(
        self, core: nn.Module, *, of_source: bool = False
    ) -> tuple[Tensor, Tensor | None] | None:
        """Of the module's next call the attention weights, [head, target, source], lifted.

        And which sources its mask left visible, [target, source], if it had one.
        """
        calls = self._seen.weights.get(core)
        if not calls:
            return None
        batch, number = self._batch, self._number
        sources = batch.source_lengths if of_source else batch.lengths
        targets, sources = slice(batch.lengths[number]), slice(sources[number])
        call = calls[self._count(core)]
        visible = None
        if call.mask is not None:
            mask = call.mask[number if len(call.mask) > 1 else 0, :, targets, sources]
            visible = (mask > torch.finfo(mask.dtype).min / 2).any(0).to(batch.device)
        return self._own(call.alpha[number, :, targets, sources]), visible

    def prepared(self, norm: Norm, name: str, layer: int) -> NormRecord:
        """The norm of a sublayer's input; parallel sublayers may share one (GPT-J)."""
        seen = len(self._seen.tensors[norm.module, "input"])
        if self._calls.get((norm.module, "input"), -1) + 1 < seen:
            self._prepared[norm.module] = _norm(norm, name, layer, self)
        return self._prepared[norm.module]

    def _count(self, key: object) -> int:
        self._calls[key] = self._calls.get(key, -1) + 1
        return self._calls[key]

    def _cut(self, tensor: Tensor, of_source: bool = False) -> Tensor:
        batch = self._batch
        lengths = batch.source_lengths if of_source else batch.lengths
        if tensor.ndim == 2:  # all tokens in one row (OPT), or one text for all (positions)
            texts = 1 if len(tensor) == batch.width else batch.texts
            tensor = tensor.unflatten(0, (texts, -1))
        number = self._number if len(tensor) > 1 else 0
        return self._own(tensor[number, : lengths[self._number]])

    def _own(self, part: Tensor) -> Tensor:
        """Lifted, on one device, and free of the rest of the batch."""
        own = lift(part).to(self._batch.device)
        return own.clone() if self._batch.texts > 1 else own


@dataclass(frozen=True)
class _Batch:
    """The shape of the batch: its texts, padded to ``width`` tokens."""

    texts: int
    width: int
    lengths: Sequence[int]
    source_lengths: Sequence[int]
    device: torch.device

    def inputs_of(self, number: int, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The arguments of the model for one of the texts, without padding."""
        found = {}
        for name, tensor in inputs.items():
            of_source = name.startswith("encoder_")
            length = (self.source_lengths if of_source else self.lengths)[number]
            found[name] = tensor[number : number + 1, :length]
        return found


def _read(
    anatomy: Anatomy,
    text: _Text,
    inputs: Mapping[str, Tensor],
    tensors: ModelTensors,
    whole: ModelTensors,
) -> Run:
    hidden = [text.next(block.module, "input") for block in anatomy.blocks]
    end: tuple[nn.Module, Side]
    end = (anatomy.base, "output") if anatomy.outlet is None else (anatomy.outlet, "input")
    hidden.append(text.next(*end))
    states = torch.stack(hidden)
    _check_finite(states)
    stream = Stream(_embeddings(anatomy, text, hidden[0]), tuple(_steps(anatomy, text, hidden)))
    return Run(
        hidden=states,
        attention=_alphas(stream, "attention"),
        cross_attention=_alphas(stream, "source") if "source" in anatomy.terms else None,
        stream=stream,
        inputs=inputs,
        tensors=tensors,
        whole=whole,
        dtype=anatomy.base.dtype,
    )


def _whole(anatomy: Anatomy, model: Any) -> ModelTensors:
    """All tensors of a model; those that no record refers to are sampled."""
    used = [embedding.module for embedding in anatomy.embeddings]
    used += [s.module if isinstance(s, Norm) else s.dense.module for s in anatomy.stem]
    outlet = [] if anatomy.outlet is None else [anatomy.outlet]
    sampled = tensors_outside_layers(model, [anatomy.words.module, *used, *outlet])
    return ModelTensors(model, sampled)


def _alphas(stream: Stream, term: Term) -> Tensor:
    return torch.stack([record.alpha for record in stream.attentions if record.term == term])


def _steps(
    anatomy: Anatomy, text: _Text, hidden: list[Tensor]
) -> Iterator[StreamStep | StateRecord]:
    """The run-time side of every step of the anatomy, with the hidden states in their places."""
    for step in anatomy.stem:
        yield _record(step, "embedding", -1, False, text)
    yield StateRecord(0, hidden[0])
    last = len(anatomy.blocks)
    for layer, block in enumerate(anatomy.blocks):
        for step in block.steps:
            yield _record(step, f"layer {layer + 1}", layer, block.parallel, text)
        if layer + 1 < last or not anatomy.tail:
            yield StateRecord(layer + 1, hidden[layer + 1])
    if anatomy.tail:
        for norm in anatomy.tail:
            yield _norm(norm, "final norm", None, text)
        yield StateRecord(last, hidden[last])


def _embeddings(anatomy: Anatomy, text: _Text, entered: Tensor) -> EmbeddingRecord:
    first = anatomy.stem[0] if anatomy.stem else None
    start = entered
    if first is not None:
        module = first.module if isinstance(first, Norm) else first.dense.module
        start = text.first(module, "input")
    if start is None:
        raise UnsupportedModelError(
            f"{type(anatomy.base).__name__} does not use the embedding norm that it has, "
            "so what enters its first layer cannot be explained."
        )
    pieces = {}
    for embedding in anatomy.embeddings:
        piece = text.first(embedding.module, "output")
        if piece is not None:
            pieces[embedding.name] = embedding.scale * piece
    return EmbeddingRecord(name="embeddings", term="input", layer=-1, output=start, pieces=pieces)


def _record(step: Step, where: str, layer: int, parallel: bool, text: _Text) -> StreamStep:
    match step:
        case Norm():
            return _norm(step, f"{where} norm", layer, text)
        case Projection():
            return ProjectionRecord(
                f"{where} projection", affine_of(step.dense, text.names, text.device)
            )
        case Attention():
            kind = "attention" if step.term == "attention" else "cross-attention"
            return _attention(step, f"{where} {kind}", layer, text)
        case FeedForward():
            return _feed_forward(step, f"{where} feed-forward", layer, parallel, text)


def _norm(norm: Norm, name: str, layer: int | None, text: _Text) -> NormRecord:
    x = text.next(norm.module, "input")
    if norm.kind == "rms":
        mean, variance = None, x.square().mean(-1, keepdim=True)
    else:
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).square().mean(-1, keepdim=True)  # var_mean takes ten times as long
    return NormRecord(name, layer, norm_rule_of(norm, text.device), mean, variance)


def _norms_around(
    step: Attention | FeedForward, name: str, layer: int, text: _Text
) -> tuple[NormRecord | None, NormRecord | None]:
    """The norm of a sublayer's input and that of what it writes."""
    before, after = step.before, step.after
    return (
        None if before is None else text.prepared(before, f"{name} input norm", layer),
        None if after is None else _norm(after, f"{name} norm", layer, text),
    )


def _feed_forward(
    step: FeedForward, name: str, layer: int, parallel: bool, text: _Text
) -> FeedForwardRecord:
    before, after = _norms_around(step, name, layer, text)
    u, v = _inner(step, text)
    return FeedForwardRecord(
        name=name,
        term=step.term,
        layer=layer,
        output=text.next(step.output.module, "output"),
        bias=owned(step.bias, text.device),
        before=before,
        after=after,
        read=text.next(step.inner.module, "input"),
        u=u,
        inner=affine_of(step.inner, text.names, text.device),
        activation=step.activation,
        neurons=text.next(step.output.module, "input"),
        output_map=affine_of(step.output, text.names, text.device),
        v=v,
        gate=None if step.gate is None else affine_of(step.gate, text.names, text.device),
        parallel=parallel,
    )


def _attention(step: Attention, name: str, layer: int, text: _Text) -> AttentionRecord:
    before, after = _norms_around(step, name, layer, text)
    of_source = step.term == "source"
    weights = text.weights(step.core, of_source=of_source)
    if weights is None:
        raise UnsupportedModelError(
            f"The {name} does not use the attention registry of transformers, so it cannot be seen: "
            "use a model class of transformers itself, or a newer transformers."
        )
    alpha, visible = weights
    if step.visible is not None:
        visible = step.visible(alpha.shape[-1]).to(alpha.device)
    value = text.next(step.value.module, "output", of_source=of_source)
    if step.value.columns is not None:
        value = value[:, step.value.columns].contiguous()
    scores = step.scores
    if scores is not None:
        tables = text.tables(step.core)
        scores = scores_of(scores, tables, text.names, text.device)
    return AttentionRecord(
        name=name,
        term=step.term,
        layer=layer,
        output=text.next(step.output.module, "output"),
        bias=owned(step.bias, text.device),
        before=before,
        after=after,
        context=text.next(step.output.module, "input"),
        output_map=affine_of(step.output, text.names, text.device),
        alpha=alpha,
        value=value.unflatten(-1, (step.kv_heads, -1)).transpose(0, 1),
        value_map=affine_of(step.value, text.names, text.device),
        read=text.next(_reader(step), "input"),
        scores=scores,
        source_key=_source_key(step, text) if of_source else None,
        visible=None if visible is None or visible.all() else visible,
    )


def _source_key(step: Attention, text: _Text) -> Tensor | None:
    if step.scores is None:
        return None
    key = text.next(step.scores.key.module, "output", of_source=True)
    return key.unflatten(-1, (step.kv_heads, -1)).transpose(0, 1)


def _inner(step: FeedForward, text: _Text) -> tuple[Tensor, Tensor | None]:
    """What entered the activation, and what the gate multiplied by."""
    computed = text.next(step.inner.module, "output")
    u = computed if step.inner.columns is None else computed[:, step.inner.columns]
    if step.gate is None:
        return u, None
    if step.gate.module is not step.inner.module:
        computed = text.next(step.gate.module, "output")
    return u, computed if step.gate.columns is None else computed[:, step.gate.columns]


def _check_finite(hidden: Float[Tensor, "layer+1 token d"]) -> None:
    if torch.stack(hidden.aminmax()).isfinite().all():
        return
    for layer, state in enumerate(hidden):
        if not torch.isfinite(state).all():
            where = "the embeddings" if layer == 0 else f"the output of layer {layer}"
            raise ProsectError(
                f"NaN or infinite values in {where}: check the weights there, "
                "or load the model in float32 if it is in float16."
            )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for the duration; each module gets its own mode back."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True

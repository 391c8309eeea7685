"""The effective weights of a module: the one place that knows how they are stored.

A weight need not be a parameter called ``weight``: adapters add to it, quantised layers encode it,
parametrisations, pruning and weight norm compute it. What is read here is the weight that the module
computes with, or one sentence says why there is none. A plain weight is read as a view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers.pytorch_utils import Conv1D

from prosect.errors import StaleTraceError, UnsupportedModelError
from prosect.modes import plain_arithmetic

SCALE = 2.0**8
"""How long the unit vectors are that measure a layer: its bias then hardly rounds its weight."""
TOLERANCES = {torch.float16: 3e-3, torch.bfloat16: 1e-2}
"""How far x W + b may be from what a layer computes, relatively; 1e-4 in other precisions."""


@dataclass(frozen=True, eq=False)
class StoredWeight:
    """What a weight is made from: the model's tensors, and from them the weight.

    Attributes
    ----------
    name
        What to call it where the model has no name for its tensors.
    tensors
        Everything that it depends on.
    make
        Makes it from these tensors: a view where it is stored plainly, else a new tensor.
    """

    name: str
    tensors: tuple[Tensor, ...]
    make: Callable[..., Tensor]

    def read(self) -> Tensor:
        """The weight as it is now, without its gradient."""
        return self.make(*(tensor.detach() for tensor in self.tensors))

    def then(self, change: Callable[[Tensor], Tensor]) -> StoredWeight:
        """The same weight, changed after it is made."""
        return StoredWeight(self.name, self.tensors, lambda *tensors: change(self.make(*tensors)))

    def plus_product(self, down: Tensor, up: Tensor, scale: float) -> StoredWeight:
        """W + scale · downᵀ upᵀ, in at least float32: half precision loses no more."""

        def make(*tensors: Tensor) -> Tensor:
            *base, first, second = tensors
            weight = self.make(*base)
            wide = wide_of(weight, first)
            with plain_arithmetic():
                return weight + scale * (first.to(wide).T @ second.to(wide).T)

        return StoredWeight(self.name, (*self.tensors, down, up), make)


def weight_of(module: Any) -> StoredWeight:
    """W of a linear layer x W + b, as [in, out] whatever class stores it.

    Raises
    ------
    UnsupportedModelError
        If the module is no linear layer.
    """
    module = active(module)
    if _is_plain(module):
        stored = _stored(module, "weight")
        assert stored is not None
        return stored if isinstance(module, Conv1D) else stored.then(lambda weight: weight.T)
    if _is_lora(module, "Linear"):
        weight = weight_of(module.base_layer)
        for name in _active_adapters(module, module.lora_A):
            down, up = module.lora_A[name].weight, module.lora_B[name].weight
            weight = weight.plus_product(down, up, module.scaling[name])
        return weight
    _vectors(module, 0)  # raises where the module is no layer at all
    return _of_module(module, "weight", lambda: _measured(module))


def bias_of(module: Any) -> Float[Tensor, "d_out"] | None:
    """The bias b of a linear layer, where it has one.

    Raises
    ------
    UnsupportedModelError
        If the module is no linear layer.
    """
    module = active(module)
    if _is_plain(module):
        return parameter_of(module, "bias")
    if _is_lora(module, "Linear"):
        bias = bias_of(module.base_layer)
        for name in _active_adapters(module, module.lora_A):
            own = module.lora_B[name].bias
            if own is not None:
                with plain_arithmetic():
                    added = module.scaling[name] * own
                    bias = added if bias is None else bias + added
        return bias
    bias = _returned_for_zero(module)
    return bias if bool(bias.any()) else None


def rows_of(module: Any) -> StoredWeight:
    """The embeddings [row, d] of a lookup table, before any scale that its class applies.

    Raises
    ------
    UnsupportedModelError
        If the module is no table of embeddings.
    """
    module = active(module)
    if _is_plain_table(module):
        stored = _stored(module, "weight")
        assert stored is not None
        return stored
    if _is_lora(module, "Embedding"):
        rows = rows_of(module.base_layer)
        for name in _active_adapters(module, module.lora_embedding_A):
            down, up = module.lora_embedding_A[name], module.lora_embedding_B[name]
            rows = rows.plus_product(down, up, module.scaling[name])
        return rows
    table = innermost(module)
    if not isinstance(getattr(table, "num_embeddings", None), int):
        raise UnsupportedModelError(
            f"{type(module).__name__} stands where a table of embeddings is expected: "
            "merge adapters into the model with merge_and_unload(), or load it unquantised."
        )

    def look_up() -> Tensor:
        ids = torch.arange(table.num_embeddings, device=_device(module))
        return module.forward(ids) / float(getattr(table, "embed_scale", 1.0))

    return _of_module(module, "word embeddings", look_up)


def parameter_of(module: Any, name: str) -> Tensor | None:
    """A parameter as a module computes with it; None where it has none of that name.

    Raises
    ------
    UnsupportedModelError
        If something unknown computes it.
    """
    stored = _stored(active(module), name)
    return None if stored is None else stored.read()


def _stored(module: Any, name: str) -> StoredWeight | None:
    """What a parameter is made from; None where the module has none of that name."""
    if parametrize.is_parametrized(module, name):
        return _of_module(module, name, lambda: getattr(module, name))
    own = module._parameters.get(name, module._buffers.get(name))
    if own is not None:
        return StoredWeight(name, (own,), lambda tensor: tensor)
    if module.__dict__.get(name) is None and not hasattr(module, "base_layer"):
        return None
    # pruning and the older weight norm set a plain attribute before each forward pass
    for hook in module._forward_pre_hooks.values():
        if name in (getattr(hook, "name", None), getattr(hook, "_tensor_name", None)):
            if hasattr(hook, "apply_mask"):
                return _of_module(module, name, partial(hook.apply_mask, module))
            if hasattr(hook, "n_power_iterations"):
                return _of_module(module, name, partial(hook.compute_weight, module, False))
            if hasattr(hook, "compute_weight"):
                return _of_module(module, name, partial(hook.compute_weight, module))
    raise UnsupportedModelError(
        f"The {name} of a {type(module).__name__} is no parameter of it, and what computes it is "
        "not known: merge what changes it into the module, as with merge_and_unload() or "
        "torch.nn.utils.parametrize.remove_parametrizations."
    )


def _of_module(module: nn.Module, name: str, make: Callable[[], Tensor]) -> StoredWeight:
    """A weight that only the module itself can compute, as long as it is in the same state."""
    tensors, before = _all_tensors(module), _state(module)

    def compute(*_: Tensor) -> Tensor:
        if _state(module) != before:
            raise StaleTraceError(
                f"A {type(module).__name__} was changed, moved, or given other adapters after this "
                "text was traced: trace the text again."
            )
        with evaluated(module):
            return make().detach()

    return StoredWeight(name, tuple(tensors.values()), compute)


def _state(module: nn.Module) -> list[object]:
    """What a module computes with beside the values of its tensors."""
    tensors = [(id(t), t.device, t.dtype) for t in _all_tensors(module).values()]
    names = ("disable_adapters", "active_adapters", "merged_adapters", "scaling")
    adapters = [[repr(getattr(m, name, None)) for name in names] for m in module.modules()]
    return [tensors, adapters]


def active(module: Any) -> Any:
    """The module that computes, where peft keeps several in one place for different adapters."""
    while True:
        copies = getattr(module, "modules_to_save", getattr(module, "ln_tuning_layers", None))
        if not isinstance(copies, nn.ModuleDict):
            return module
        original = getattr(module, "original_module", None) or module.base_layer
        names = _active_adapters(module, copies)
        module = copies[names[0]] if names else original


def innermost(module: Any) -> Any:
    """The module of the original model, below every adapter."""
    while True:
        inner = getattr(active(module), "base_layer", None)
        if inner is None:
            return active(module)
        module = inner


def check_linear(module: Any) -> None:
    """Whether x W + b is what a module computes, tried out where its class does not say so.

    Raises
    ------
    UnsupportedModelError
        If it is not.
    """
    weight, bias = weight_of(module), bias_of(module)
    inner = active(module)
    if not _is_plain(inner) or "forward" in vars(inner):  # replaced in this module alone
        _compare(module, weight.read(), bias)


def check_loaded(module: nn.Module) -> None:
    """Whether every weight has values.

    Raises
    ------
    UnsupportedModelError
        If one is on the meta device.
    """
    for name, tensor in _all_tensors(module).items():
        if tensor.is_meta:
            raise UnsupportedModelError(
                f"The weight {name} is on the meta device and has no values: "
                "load the whole model onto a device, with from_pretrained and without offloading."
            )


@contextmanager
def evaluated(module: nn.Module) -> Iterator[None]:
    """Let a module compute as in evaluation; nothing of it is changed afterwards."""
    training = [inner for inner in module.modules() if inner.training]
    with plain_arithmetic():
        for inner in training:
            inner.training = False
        try:
            yield
        finally:
            for inner in training:
                inner.training = True


def wide_of(*tensors: Tensor) -> torch.dtype:
    """A precision that holds them all, at least float32."""
    found = torch.float32
    for tensor in tensors:
        found = torch.promote_types(found, tensor.dtype)
    return found


def _is_plain(module: Any) -> bool:
    """Whether the module is a linear layer that computes with its own ``weight`` and ``bias``."""
    forward = getattr(type(module), "forward", None)
    if forward is not nn.Linear.forward and forward is not Conv1D.forward:
        return False
    return _is_plain_tensor(module._parameters.get("weight"))


def _is_plain_table(module: Any) -> bool:
    """Whether the module looks up rows of its own ``weight``."""
    return isinstance(module, nn.Embedding) and _is_plain_tensor(module._parameters.get("weight"))


def _is_plain_tensor(tensor: Tensor | None) -> bool:
    """Whether a parameter holds numbers as they are; None where something computes it."""
    return tensor is None or type(tensor) in (Tensor, nn.Parameter)


def _is_lora(module: Any, kind: str) -> bool:
    """Whether the module adds a product of two matrices, and nothing else, to what it wraps."""
    own = type(module)
    known = own.__module__ == "peft.tuners.lora.layer" and own.__name__ == kind
    return known and not getattr(module, "lora_variant", None)


def _active_adapters(module: Any, known: Any) -> list[str]:
    """Which of the known adapters are at work in a module of peft, beside its weight."""
    merged = bool(getattr(module, "merged", False))
    if merged and module.disable_adapters:
        raise UnsupportedModelError(
            "The model's adapters are merged and disabled at once: call unmerge_adapter() first."
        )
    if merged or module.disable_adapters:
        return []
    return [name for name in module.active_adapters if name in known]


def _all_tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _device(module: nn.Module) -> torch.device:
    return next((t.device for t in _all_tensors(module).values()), torch.device("cpu"))


def _vectors(module: Any, rows: int) -> Tensor:
    """Zeros to put into a layer, in the precision that it computes in."""
    width = getattr(module, "in_features", None)
    if not isinstance(width, int) or not isinstance(module, nn.Module):
        raise UnsupportedModelError(
            f"{type(module).__name__} stands where a linear layer is expected: "
            "merge adapters into the model with merge_and_unload(), or load it unquantised."
        )
    floating = (t.dtype for t in _all_tensors(module).values() if t.is_floating_point())
    return torch.zeros(
        rows, width, dtype=next(floating, torch.get_default_dtype()), device=_device(module)
    )


def _returned_for_zero(module: Any) -> Float[Tensor, "d_out"]:
    """The bias b of a layer of any class."""
    zero = _vectors(module, 1)
    with evaluated(module):
        return module.forward(zero)[0].detach()


def _measured(module: Any) -> Float[Tensor, "d_in d_out"]:
    """W of a layer of any class, from what it returns for unit vectors and for zero."""
    zero, bias = _vectors(module, 1), _returned_for_zero(module)
    unit = torch.eye(zero.shape[1], dtype=zero.dtype, device=zero.device)
    weight = (module.forward(SCALE * unit) - bias) / SCALE
    _compare(module, weight, bias)
    return weight


def _compare(module: Any, weight: Tensor, bias: Tensor | None) -> None:
    """Compare x W + b with what a layer returns for a few x, of large and small numbers."""
    module = active(module)
    zero = _vectors(module, 4)
    drawn = torch.randn(zero.shape, generator=torch.Generator().manual_seed(0)) ** 3
    x = drawn.to(zero)
    with evaluated(module):
        got = module.forward(x).to(wide_of(weight))
        expected = x.to(wide_of(weight)) @ weight.to(wide_of(weight))
        expected = expected if bias is None else expected + bias
        gap = torch.linalg.norm(got - expected)
        within = TOLERANCES.get(zero.dtype, 1e-4) * torch.linalg.norm(got)
    if bool(gap > within):  # where either is not finite, the run says in which layer
        raise UnsupportedModelError(
            f"{type(module).__name__} does not compute x W + b from its input x, so it has no weight "
            "to read: load the model unquantised, or merge adapters with merge_and_unload()."
        )

"""A model's tensors as they were in a run: to repeat the run, and to know that nothing has changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from torch import Tensor, nn

from prosect.engines.records import stamp_of
from prosect.errors import StaleTraceError


class ModelTensors:
    """The parameters, buffers and modules of a model as they are now: references, no copies.

    Parameters
    ----------
    model
        Whose.
    sampled
        Those of its tensors whose entries are compared too: writes through ``.data`` show in no
        version.
    """

    def __init__(self, model: nn.Module, sampled: Iterable[Tensor] = ()) -> None:
        self._model = model
        self._kept = {name: tensor.detach() for name, tensor in _tensors_of(model)}
        self._versions = {name: _version(tensor) for name, tensor in self._kept.items()}
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._stamps = [(tensor.detach(), stamp_of(tensor)) for tensor in sampled]

    def replaced_in(self, model: nn.Module) -> dict[str, Tensor]:
        """Those that the model has replaced since, by name, as they were: after ``half`` or ``to``.

        Those made in inference mode are among them, as copies: backward cannot go past an original.

        Raises
        ------
        StaleTraceError
            If a tensor was changed in place, or the model no longer has it or its module.
        """
        now = self._checked(model)
        return {
            name: tensor.clone() if tensor.is_inference() else tensor
            for name, tensor in self._kept.items()
            if type(tensor) is Tensor and (tensor.is_inference() or not _is_same(tensor, now[name]))
        }

    def check(self) -> None:
        """Refuse a model that is not what it was.

        Raises
        ------
        StaleTraceError
            If a tensor or a module was changed, replaced or moved.
        """
        now = self._checked(self._model)
        for name, tensor in self._kept.items():
            if not _is_same(tensor, now[name]):
                raise StaleTraceError(
                    f"The tensor {name!r} was replaced or moved after this text was traced: "
                    "trace the text again."
                )
        for tensor, stamp in self._stamps:
            if stamp_of(tensor) != stamp:
                name = next(n for n, kept in self._kept.items() if _is_same(tensor, kept))
                raise _changed(name)

    def _checked(self, model: nn.Module) -> dict[str, Tensor]:
        """The model's tensors, by name, if none was changed in place or lost."""
        now = dict(_tensors_of(model))
        for name, tensor in self._kept.items():
            if name not in now:
                raise StaleTraceError(
                    f"The model no longer has the tensor {name!r}, which it had when this text was "
                    "traced: trace the text again."
                )
            if _version(tensor) != self._versions[name]:
                raise _changed(name)
        modules = dict(model.named_modules(remove_duplicate=False))
        for name, module in self._modules.items():
            if modules.get(name) is not module:
                raise StaleTraceError(
                    f"The module {name!r} was replaced after this text was traced: make a new lens "
                    "and trace the text again."
                )
        return now


def tensors_outside_layers(model: Any, used: Iterable[nn.Module]) -> list[Tensor]:
    """The tensors of a model's output head, and of the other modules that are named."""
    inside = {id(tensor) for _, tensor in _tensors_of(model.base_model)}
    found = [tensor for _, tensor in _tensors_of(model) if id(tensor) not in inside]
    for module in (getattr(model, "get_output_embeddings", lambda: None)(), *used):
        if module is not None:
            found += [tensor for _, tensor in _tensors_of(module)]
    return list({id(tensor): tensor for tensor in found}.values())


def _changed(name: str) -> StaleTraceError:
    return StaleTraceError(
        f"The tensor {name!r} was changed after this text was traced: trace the text again."
    )


def _tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and buffer under each of its names, so that tied ones have all of theirs."""
    return chain(
        model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)
    )


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _is_same(a: Tensor, b: Tensor) -> bool:
    if a.dtype != b.dtype or a.device != b.device:
        return False
    return type(a) is not Tensor or a.is_set_to(b)

"""A model's tensors as they were in a run, so that the run can be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from torch import Tensor, nn

from prosect.errors import StaleTraceError


class ModelTensors:
    """The parameters and buffers of a model as they are now: references, no copies.

    Parameters
    ----------
    model
        Whose.
    """

    def __init__(self, model: nn.Module) -> None:
        self._kept = {name: tensor.detach() for name, tensor in _tensors_of(model)}
        self._versions = {name: _version(tensor) for name, tensor in self._kept.items()}

    def replaced_in(self, model: nn.Module) -> dict[str, Tensor]:
        """Those that the model has replaced since, by name, as they were: after ``half`` or ``to``.

        Those made in inference mode are among them, as copies: backward cannot go past an original.

        Raises
        ------
        StaleTraceError
            If a tensor was changed in place, or the model no longer has it.
        """
        now = dict(_tensors_of(model))
        for name, tensor in self._kept.items():
            if name not in now:
                raise StaleTraceError(
                    f"The model no longer has the tensor {name!r}, which it had when this text was "
                    "traced: trace the text again."
                )
            if _version(tensor) != self._versions[name]:
                raise StaleTraceError(
                    f"The tensor {name!r} was changed after this text was traced: "
                    "trace the text again."
                )
        return {
            name: tensor.clone() if tensor.is_inference() else tensor
            for name, tensor in self._kept.items()
            if type(tensor) is Tensor and (tensor.is_inference() or not _is_same(tensor, now[name]))
        }


def _tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(model.named_parameters(), model.named_buffers())


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _is_same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.device == b.device and a.is_set_to(b)

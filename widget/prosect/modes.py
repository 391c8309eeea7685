"""Public calls compute the same in whatever mode of torch the caller is.

Inside ``torch.inference_mode`` nothing can be differentiated, autocast rounds products to half
precision, and with gradients on every result would hold a graph. So every public call switches to
plain arithmetic, and back when it returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property, wraps
from typing import Any, TypeVar

import torch

AUTOCASTING = ("cpu", "cuda", "mps", "xpu")
"""The devices for which autocast may be on."""

Made = TypeVar("Made", bound=type)


@contextmanager
def plain_arithmetic() -> Iterator[None]:
    """No inference mode, no gradients and no autocast, for the duration. Also a decorator."""
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        for device in AUTOCASTING:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def in_plain_arithmetic(made: Made) -> Made:
    """Decorate a class: its own public methods and properties run in plain arithmetic."""
    for name, member in list(vars(made).items()):
        if not name.startswith("_"):
            wrapped = _wrapped(member)
            if isinstance(wrapped, cached_property):
                wrapped.__set_name__(made, name)
            if wrapped is not member:
                setattr(made, name, wrapped)
    return made


def _wrapped(member: Any) -> Any:
    match member:
        case classmethod() | staticmethod():
            return type(member)(_wrapped(member.__func__))
        case property():
            return property(_wrapped(member.fget), member.fset, member.fdel, member.__doc__)
        case cached_property():
            return cached_property(_wrapped(member.func))
    if inspect.isgeneratorfunction(member):
        return _generating(member)
    return plain_arithmetic()(member) if inspect.isfunction(member) else member


def _generating(function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """The caller's modes hold between the items: plain arithmetic is for making each."""

    @wraps(function)
    def generate(*args: Any, **kwargs: Any) -> Iterator[Any]:
        items = function(*args, **kwargs)
        try:
            while True:
                with plain_arithmetic():
                    try:
                        item = next(items)
                    except StopIteration:
                        return
                yield item
        finally:
            items.close()  # pyright: ignore[reportAttributeAccessIssue]

    return generate

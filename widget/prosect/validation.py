"""Checks of arguments. An invalid value raises a ``ProsectError``.

Every message names the argument, the values that are allowed and the value that was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import torch

from prosect.errors import ProsectError


def whole_number(number: object, name: str) -> int:
    """Convert an integer of any library, such as an element of an array; Booleans are refused."""
    is_flag = isinstance(number, bool) or getattr(number, "dtype", None) in (torch.bool, bool)
    if not is_flag:
        try:
            return index(number)  # pyright: ignore[reportArgumentType]
        except TypeError:
            pass
    raise ProsectError(f"{name} must be an integer, got {number!r}.")


def listed(numbers: Sequence[int], name: str) -> list[int]:
    """Convert a sequence of integers to a list."""
    if isinstance(numbers, str) or not hasattr(numbers, "__iter__"):
        raise ProsectError(f"{name} must be a list of integers, got {numbers!r}.")
    return [whole_number(number, f"Every element of {name}") for number in numbers]


def check_count(number: object, name: str) -> None:
    """Accept an integer of at least 1."""
    if whole_number(number, name) < 1:
        raise ProsectError(f"{name} must be at least 1, got {number}.")


def check_share(number: object, name: str, *, below_one: bool = False) -> None:
    """Accept a number from 0 to 1; with ``below_one``, a number from 0 to less than 1."""
    bounds = "at least 0 and less than 1" if below_one else "between 0 and 1"
    is_number = hasattr(number, "__float__") and not isinstance(number, bool)
    share = float(number) if is_number else -1.0  # pyright: ignore[reportArgumentType]
    if not 0 <= share <= 1 or (below_one and share == 1):
        raise ProsectError(f"{name} must be {bounds}, got {number!r}.")


def check_flag(flag: object, name: str) -> None:
    """Accept True and False, but no other values."""
    if not isinstance(flag, bool):
        raise ProsectError(f"{name} must be True or False, got {flag!r}.")


def check_known(value: object, known: Sequence[str], name: str) -> None:
    """Accept one of the known names."""
    if value not in known:
        raise ProsectError(f"{name} must be one of {', '.join(known)}, got {value!r}.")

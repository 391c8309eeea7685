"""What readers ask for: numbers, lists, flags and names, each as it should be or one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import torch

from prosect.errors import ProsectError


def whole_number(number: object, what: str) -> int:
    """A whole number of any library, such as one element of an array; flags are none."""
    if isinstance(number, bool) or getattr(number, "dtype", None) in (torch.bool, bool):
        raise ProsectError(f"A {what} is a whole number, not {number!r}.")
    try:
        return index(number)  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise ProsectError(f"A {what} is a whole number, not {number!r}.") from None


def listed(numbers: Sequence[int], what: str) -> list[int]:
    """Whole numbers one after the other."""
    if isinstance(numbers, str) or not hasattr(numbers, "__iter__"):
        raise ProsectError(f"{what}s are given as a list, not as {numbers!r}.")
    return [whole_number(number, what) for number in numbers]


def check_count(number: object, what: str) -> None:
    """How many there should be: at least one."""
    if whole_number(number, "count") < 1:
        raise ProsectError(f"{what} and must be at least 1, not {number}.")


def check_share(number: object, name: str, *, below_one: bool = False) -> None:
    """From 0 to 1, or to less than 1."""
    bounds = "from 0 to less than 1" if below_one else "between 0 and 1"
    known = hasattr(number, "__float__") and not isinstance(number, bool)
    share = float(number) if known else -1.0  # pyright: ignore[reportArgumentType]
    if not 0 <= share <= 1 or (below_one and share == 1):
        raise ProsectError(f"{name} is a share {bounds}, not {number!r}.")


def check_flag(flag: object, name: str) -> None:
    """True or False, and nothing that would pass for one of them."""
    if not isinstance(flag, bool):
        raise ProsectError(f"{name} is True or False, not {flag!r}.")


def check_known(value: object, known: Sequence[str], what: str) -> None:
    """One of some names."""
    if value not in known:
        raise ProsectError(f"There is no {what} {value!r}: choose one of {', '.join(known)}.")

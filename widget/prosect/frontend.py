"""The built front end: one module for all views, its style, and the shim that makes it a page."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from prosect.errors import ProsectError


@cache
def source(name: str) -> str:
    """The text of a built file of the front end.

    Raises
    ------
    ProsectError
        If the front end was not built, which only happens in a source checkout.
    """
    file = files("prosect") / "static" / name
    if not file.is_file():
        raise ProsectError(
            "The front end is not built: run make setup in the checkout, or install a wheel."
        )
    return file.read_text(encoding="utf-8")

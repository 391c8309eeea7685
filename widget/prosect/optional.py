"""Optional packages, which only some functions need."""

from __future__ import annotations

import importlib
from typing import Any

from prosect.errors import ProsectError


def needs(module: str) -> Any:
    """Import a module of the ``corpus`` extra.

    Raises
    ------
    ProsectError
        If its package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ProsectError(
            f"This function needs the package {module.partition('.')[0]}: "
            "run pip install 'prosect[corpus]'."
        ) from None

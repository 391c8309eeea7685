"""What prosect raises can be caught by its name in the package."""

from __future__ import annotations

import prosect
from prosect import errors


def test_every_error_is_exported() -> None:
    raised = [name for name, kind in vars(errors).items() if isinstance(kind, type)]
    assert "StaleTraceError" in raised
    for name in raised:
        assert getattr(prosect, name) is getattr(errors, name)
        assert name in prosect.__all__

"""Measure how long the steps of an experiment take."""

from __future__ import annotations

import time


class Stopwatch:
    """Measures wall time from its creation."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """The seconds since the stopwatch was created."""
        return time.perf_counter() - self._start

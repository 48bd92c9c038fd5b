"""The wall clock of a recipe; tests put their own in its place."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Answers milliseconds since 1970."""

Sleep = Callable[[float], None]
"""Waits for so many milliseconds."""


def wall_clock_ms() -> int:
    """Now."""
    return time.time_ns() // 1_000_000


def sleep_ms(duration_ms: float) -> None:
    """Wait."""
    time.sleep(duration_ms / 1000)

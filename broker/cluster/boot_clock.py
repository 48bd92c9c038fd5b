"""CLOCK_BOOTTIME: never steps, and runs while the process is stopped or the machine sleeps."""

from __future__ import annotations

import time


def boot_ms() -> int:
    """The clock's time in milliseconds."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

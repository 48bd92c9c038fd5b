"""The clock that never steps and goes on while the process is stopped or the machine sleeps."""

from __future__ import annotations

import time


def boot_ms() -> int:
    """Milliseconds by it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

"""How fast a counter grows: its mean growth per second over the last ten to twenty seconds.

The owner of the counter calls `look` before each increment, so the meter stores a few numbers,
costs a comparison and needs no timer. It is not state: a restart begins again.
"""

from __future__ import annotations

from typing import Final

WINDOW_MS: Final = 10_000


class RateMeter:
    """The rate of one counter that only grows."""

    __slots__ = ("_from_ms", "_from_value", "_mid_ms", "_mid_value", "_seen_ms")

    def __init__(self) -> None:
        self._from_ms: int | None = None
        """Start of the window; None = `look` was never called."""
        self._from_value = 0
        self._mid_ms = 0
        """Start of the next window."""
        self._mid_value = 0
        self._seen_ms = 0

    def look(self, now_ms: int, value: int) -> None:
        """Record the counter's value now: it has not changed since the last `look`."""
        if self._from_ms is None or now_ms < self._seen_ms:
            # After the clock was set back, earlier times mean nothing.
            self._from_ms, self._from_value = now_ms, value
            self._mid_ms, self._mid_value = now_ms, value
        elif now_ms - self._mid_ms >= WINDOW_MS:
            self._from_ms, self._from_value = self._mid_ms, self._mid_value
            if now_ms - self._seen_ms >= WINDOW_MS:
                # Nothing happened during the whole last window.
                self._from_ms, self._from_value = now_ms - WINDOW_MS, value
            self._mid_ms, self._mid_value = now_ms, value
        self._seen_ms = now_ms

    def per_second(self, now_ms: int, value: int) -> float:
        """Growth per second of a counter that is at `value` now."""
        self.look(now_ms, value)
        assert self._from_ms is not None, "`look` was just called"
        # Divided by one second at least, so that the first look at a counter shows no spike.
        return max(value - self._from_value, 0) * 1_000 / max(now_ms - self._from_ms, 1_000)

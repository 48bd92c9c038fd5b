"""How fast a counter grows: its mean growth a second, over the last ten seconds or so.

Whoever is about to raise the counter shows it first, so the meter keeps three numbers, costs one
comparison and needs no timer. It is no state: a restart begins anew.
"""

from __future__ import annotations

from typing import Final

WINDOW_MS: Final = 10_000


class RateMeter:
    """Looks at one counter that only grows."""

    __slots__ = ("_from_ms", "_from_value", "_mid_ms", "_mid_value", "_seen_ms")

    def __init__(self) -> None:
        self._from_ms: int | None = None
        """Where the window begins; None = never shown anything."""
        self._from_value = 0
        self._mid_ms = 0
        """Where the next window begins."""
        self._mid_value = 0
        self._seen_ms = 0

    def look(self, now_ms: int, value: int) -> None:
        """The counter as it is now; it stood still since it was last shown, then grew."""
        if self._from_ms is None or now_ms < self._seen_ms:
            # The clock may have been set back: what was before cannot be told any more.
            self._from_ms, self._from_value = now_ms, value
            self._mid_ms, self._mid_value = now_ms, value
        elif now_ms - self._mid_ms >= WINDOW_MS:
            self._from_ms, self._from_value = self._mid_ms, self._mid_value
            if now_ms - self._seen_ms >= WINDOW_MS:
                # Nothing happened in all of the last window.
                self._from_ms, self._from_value = now_ms - WINDOW_MS, value
            self._mid_ms, self._mid_value = now_ms, value
        self._seen_ms = now_ms

    def per_second(self, now_ms: int, value: int) -> float:
        """Growth a second, of a counter that is at `value` now."""
        self.look(now_ms, value)
        assert self._from_ms is not None, "it has just been shown something"
        # A counter that was not looked at before its first second is over shows no leap.
        return max(value - self._from_value, 0) * 1_000 / max(now_ms - self._from_ms, 1_000)

"""Rates: how fast a counter grows, and how many deliveries or sends a limit allows now.

A `RateMeter` has the mean growth per second over the last ten to twenty seconds. The owner of the
counter calls `look` before each increment, so the meter stores a few numbers, costs a comparison
and needs no timer. It is not state: a restart begins again.

A `TokenBucket` allows a rate per second with a burst. All in integers, so that rounding loses
nothing however long it runs: a token is 10^9 parts, and a rate of r millionths of a token per
second adds r parts a millisecond.
"""

from __future__ import annotations

from typing import Final

from delaylog.storage.layout import NEVER_MS

# ------------------------------------------------------------------------------------ the meter

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


# ------------------------------------------------------------------------------------ the limit

TOKEN_PARTS: Final = 1_000_000_000
PER_SECOND_MAX: Final = 1e9
"""More than any machine delivers; a float keeps millionths of it."""
HOLD_MS_MAX: Final = 1_000
"""If the clock goes back by at most this, no token is earned until it has caught up, so that jitter
earns none. If it goes back further, counting starts over from the new time."""


class TokenBucket:
    """Full at first. In any window at most `burst` + rate x window tokens are taken."""

    def __init__(self, per_second: float, burst: int) -> None:
        """A rate above zero is at least a millionth."""
        if not 0 <= per_second <= PER_SECOND_MAX:
            raise ValueError(f"a rate is a number from 0 to {PER_SECOND_MAX:.0e}, not {per_second}")
        if burst < 1:
            raise ValueError(f"a burst is at least 1, not {burst}")
        self._parts_per_ms = max(round(per_second * 1_000_000), 1) if per_second else 0
        self._parts_max = burst * TOKEN_PARTS
        self._parts = self._parts_max
        self._at_ms: int | None = None
        """Time up to which tokens were earned; None = never used."""

    def take(self, now_ms: int, wanted: int) -> int:
        """Take up to `wanted` tokens; returns how many were taken."""
        self._earn(now_ms)
        taken = min(max(wanted, 0), self._parts // TOKEN_PARTS)
        self._parts -= taken * TOKEN_PARTS
        return taken

    def give_back(self, count: int) -> None:
        """Return tokens that were not used; those above the burst are lost."""
        assert count >= 0, "tokens are given back, not taken"
        self._parts = min(self._parts + count * TOKEN_PARTS, self._parts_max)

    def ready_at_ms(self, now_ms: int) -> int:
        """Earliest time, from `now_ms` on, with at least one token; NEVER_MS if there is none."""
        self._earn(now_ms)
        missing = TOKEN_PARTS - self._parts
        if missing <= 0:
            return now_ms
        if self._parts_per_ms == 0:
            return NEVER_MS
        assert self._at_ms is not None, "`_earn` sets the time"
        return self._at_ms - (-missing // self._parts_per_ms)

    def _earn(self, now_ms: int) -> None:
        at_ms = self._at_ms
        if at_ms is None or now_ms < at_ms - HOLD_MS_MAX:
            self._at_ms = now_ms
        elif now_ms > at_ms:
            earned = (now_ms - at_ms) * self._parts_per_ms
            self._parts = min(self._parts + earned, self._parts_max)
            self._at_ms = now_ms

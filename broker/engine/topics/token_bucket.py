"""Token bucket: how many deliveries, or sends, a rate per second with a burst allows now.

All in integers, so that rounding loses nothing however long it runs: a token is 10^9 parts, and a
rate of r millionths of a token per second adds r parts a millisecond.
"""

from __future__ import annotations

from typing import Final

from delaylog.storage.layout import NEVER_MS

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

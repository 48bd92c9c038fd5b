"""Catch-up: which instants fire after an outage.

An instant is late if it is more than GRACE_MS and the schedule's jitter before now. Instants that
are not late always fire. Of the late ones `none` fires none, `latest` the newest if nothing else
fires, and `all` each; the last two only within the window. All others are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from delaylog.broker.schedules.instants import next_instant, times_a_day
from delaylog.broker.schedules.timing import Timing
from delaylog.broker.schedules.zones import PACKAGED, Zones
from delaylog.storage.errors import MemberError

_DAY_MS: Final = 86_400_000
GRACE_MS: Final = 60_000
"""A take-over or a restart takes less; that is no outage."""
WINDOW_MS: Final = 86_400_000
"""The window where none is given: a day."""
CAUGHT_UP_MAX: Final = 100_000
"""Instants of a schedule that may fire after one outage: some minutes of work."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """A policy, `none`, `latest` or `all`, with its window, and the jitter of the schedule."""

    policy: str = "latest"
    window_ms: int = WINDOW_MS
    jitter_ms: int = 0

    @property
    def grace_ms(self) -> int:
        """How far before now an instant may be that is not late."""
        return GRACE_MS + self.jitter_ms


def check_window(timing: Timing, catch_up: CatchUp) -> None:
    """Raise MemberError if an outage as long as the window would fire too many instants."""
    if catch_up.policy != "all":
        return
    if timing.interval_ms is not None:
        firings = catch_up.window_ms // timing.interval_ms
    else:
        # Days that the timing leaves out count too: the bound is for times of the day.
        firings = -(-catch_up.window_ms // _DAY_MS) * times_a_day(timing)
    if min(firings, timing.count or firings) > CAUGHT_UP_MAX:
        what = (
            f"{catch_up.window_ms} has up to {firings} instants, and catch_up all fires at most "
            f"{CAUGHT_UP_MAX}: give a shorter one, or catch_up latest"
        )
        raise MemberError(f"catch_up_window_ms {what}", field="catch_up_window_ms", what=what)


def instants_after_outage(
    timing: Timing, pending_ms: int, now_ms: int, catch_up: CatchUp, zones: Zones = PACKAGED
) -> Iterator[int]:
    """The instants from `pending_ms` to `now_ms` that fire, rising; computed as they are taken."""
    grace_ms = reach_ms = catch_up.grace_ms
    if catch_up.policy != "none":
        reach_ms = max(catch_up.window_ms, grace_ms)
    first: int | None = pending_ms
    if pending_ms < now_ms - reach_ms:
        first = next_instant(timing, now_ms - reach_ms - 1, zones)
    if first is not None and catch_up.policy == "latest" and first < now_ms - grace_ms:
        first = _newest_or_fresh(timing, first, now_ms, grace_ms, zones)
    while first is not None and first <= now_ms:
        yield first
        first = next_instant(timing, first, zones)


def _newest_or_fresh(timing: Timing, late_ms: int, now_ms: int, grace_ms: int, zones: Zones) -> int:
    """The first instant that is not late, or the newest late one if there is none up to now."""
    fresh = next_instant(timing, now_ms - grace_ms - 1, zones)
    if fresh is not None and fresh <= now_ms:
        return fresh
    return _newest(timing, late_ms, now_ms, zones)


def newest_instant(timing: Timing, upto_ms: int, zones: Zones = PACKAGED) -> int:
    """The newest instant up to a time; 0 if there is none."""
    back_ms = 1
    while back_ms < upto_ms - (timing.start_ms or 0):
        found = next_instant(timing, upto_ms - back_ms, zones)
        if found is not None and found <= upto_ms:
            return _newest(timing, found, upto_ms, zones)
        back_ms *= 2
    found = next_instant(timing, 0, zones)
    return 0 if found is None or found > upto_ms else _newest(timing, found, upto_ms, zones)


def _newest(timing: Timing, known_ms: int, upto_ms: int, zones: Zones) -> int:
    """The newest instant up to a time, from an earlier instant."""
    newest, high = known_ms, upto_ms
    # Invariant: `newest` is an instant, and none is after `high`. The first guess looks one
    # period back from the end, which finds the newest of a regular timing; then the range is
    # halved.
    following = next_instant(timing, newest, zones)
    guess = None if following is None else upto_ms - (following - newest)
    while following is not None and following <= upto_ms:
        newest = following
        middle = (newest + high) // 2 if guess is None else max(guess, newest)
        guess = None
        found = next_instant(timing, middle, zones)
        if found is not None and found <= upto_ms:
            newest = found
        else:
            high = middle
        following = next_instant(timing, newest, zones)
    return newest

"""Catch-up: which instants fire after an outage.

An instant is missed if it was due before the outage ended, and no leader has decided it. Of the
missed instants `none` fires none, `latest` the newest, and `all` each; the last two only within the
window. All others are passed over, and counted as skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delaylog.broker.rules.schedules.instants import next_instant, times_a_day, walls_between
from delaylog.broker.rules.schedules.timing import Timing
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.contract.errors import MemberError

_DAY_MS: Final = 86_400_000
WINDOW_MS: Final = 86_400_000
"""The window where none is given: a day."""
COUNTED_MAX: Final = 1_000
"""Instants of a rule that are counted when an outage passes them over: some milliseconds."""
CAUGHT_UP_MAX: Final = 100_000
"""Instants of a schedule that may fire after one outage: some minutes of work."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """A policy, `none`, `latest` or `all`, with its window."""

    policy: str = "latest"
    window_ms: int = WINDOW_MS


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


def first_after_outage(
    timing: Timing, missed_ms: int, end_ms: int, catch_up: CatchUp, zones: Zones = PACKAGED
) -> int | None:
    """The first instant that fires of those missed, which are from `missed_ms` to before `end_ms`.

    None: none of them fires.
    """
    if catch_up.policy == "none":
        return None
    first: int | None = missed_ms
    if missed_ms < end_ms - catch_up.window_ms:
        first = next_instant(timing, end_ms - catch_up.window_ms - 1, zones)
    if first is None or first >= end_ms:
        return None
    return first if catch_up.policy == "all" else newest_from(timing, first, end_ms - 1, zones)


def count_instants(timing: Timing, first_ms: int, until_ms: int, zones: Zones = PACKAGED) -> int:
    """The number of instants from `first_ms`, which is one, to before `until_ms`.

    A day on which the clocks do not change has as many as it has wall times, so a cron expression
    costs a microsecond a day. Of a rule at most COUNTED_MAX are counted.
    """
    last_ms = min(until_ms, timing.end_ms or until_ms) - 1
    if timing.interval_ms is not None:
        return (last_ms - first_ms) // timing.interval_ms + 1
    count, at = int(first_ms <= last_ms), first_ms
    while at < last_ms and (timing.cron is not None or count < COUNTED_MAX):
        upto_ms = min(at + _DAY_MS, last_ms)
        walls = walls_between(timing, at, upto_ms, zones)
        if walls is not None:
            count, at = count + walls, upto_ms
            continue
        found = next_instant(timing, at, zones)
        if found is None or found > last_ms:
            break
        count, at = count + 1, found
    return count


def newest_instant(timing: Timing, upto_ms: int, zones: Zones = PACKAGED) -> int:
    """The newest instant up to a time; 0 if there is none."""
    back_ms = 1
    while back_ms < upto_ms - (timing.start_ms or 0):
        found = next_instant(timing, upto_ms - back_ms, zones)
        if found is not None and found <= upto_ms:
            return newest_from(timing, found, upto_ms, zones)
        back_ms *= 2
    found = next_instant(timing, 0, zones)
    return 0 if found is None or found > upto_ms else newest_from(timing, found, upto_ms, zones)


def newest_from(timing: Timing, known_ms: int, upto_ms: int, zones: Zones) -> int:
    """The newest instant up to a time, at or after an earlier one, which is known."""
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

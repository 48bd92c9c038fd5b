"""What becomes of a due instant: catch-up after an outage, jitter, and overlap.

Catch-up: an instant is missed if it was due before the outage ended, and no leader has decided it.
Of the missed instants `none` fires none, `latest` the newest, and `all` each; the last two only
within the window. All others are passed over, and counted as skipped.

Jitter is stable: how late a firing is on purpose, so that equal schedules do not fire together. A
firing is due in [instant, instant + jitter_ms], and before the next instant. So firings keep the
order of their instants, and due times rise strictly.

Overlap: what a due firing does while the message of the last one is not settled.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from delaylog.broker.rules.schedules.instants import next_instant, times_a_day, walls_between
from delaylog.broker.rules.schedules.timing import Timing
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.contract.members import MemberError

# ------------------------------------------------------------------------------------- catch-up

_DAY_MS: Final = 86_400_000
_DAYS_TOGETHER: Final = 28
"""Days whose instants are counted at once where the clocks do not change."""
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

    Days in which the clocks do not change have as many as they have wall times, so a cron
    expression costs some microseconds a day. Of a rule at most COUNTED_MAX are counted.
    """
    last_ms = min(until_ms, timing.end_ms or until_ms) - 1
    if timing.interval_ms is not None:
        return (last_ms - first_ms) // timing.interval_ms + 1
    count, at, singly_until_ms = int(first_ms <= last_ms), first_ms, 0
    while at < last_ms and (timing.cron is not None or count < COUNTED_MAX):
        days = 1 if at < singly_until_ms else _DAYS_TOGETHER
        upto_ms = min(at + days * _DAY_MS, last_ms)
        walls = walls_between(timing, at, upto_ms, zones)
        if walls is not None:
            count, at = count + walls, upto_ms
            continue
        if days > 1 and timing.cron is not None:
            singly_until_ms = upto_ms
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


# --------------------------------------------------------------------------------------- jitter


def due_ms(schedule_id: bytes, instant_ms: int, next_ms: int | None, jitter_ms: int) -> int:
    """The due time of a firing; the same for the same arguments on every node.

    `schedule_id` identifies the schedule in the broker. `next_ms` is the instant after this one.
    """
    span = jitter_ms if next_ms is None else min(jitter_ms, next_ms - instant_ms - 1)
    if span <= 0:
        return instant_ms
    key = schedule_id + instant_ms.to_bytes(8, "little")
    share = int.from_bytes(blake2b(key, digest_size=8).digest(), "little")
    return instant_ms + (share * (span + 1) >> 64)


# -------------------------------------------------------------------------------------- overlap


class Action(StrEnum):
    """What happens with a due instant."""

    FIRE = "fire"
    SKIP = "skip"
    """The instant fires never; it is counted as skipped."""
    BUFFER = "buffer"
    """It fires when the last firing's message is settled."""
    REPLACE = "replace"
    """The last firing's message is cancelled, and the instant fires."""


def decide_overlap(overlap: str, *, open_last: bool, buffered: bool) -> Action:
    """The action. `open_last`: the last message is pending or leased. `buffered`: one waits."""
    if overlap == "allow" or not (open_last or buffered):
        return Action.FIRE
    if overlap == "replace":
        return Action.REPLACE
    if overlap == "buffer_one" and not buffered:
        return Action.BUFFER
    return Action.SKIP

"""Times and delays as members: the one place that says which numbers are Unix milliseconds.

Every interface checks a time by `time_fault`, or a column of times by `wrong_time` of
`broker/engine/send/due_times`, so seconds, microseconds and nanoseconds are refused everywhere with
the same words. 0 passes: to a due time it means now, to `due_from` that there is none. How far
ahead a time may be is left to the caller, who knows the clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from delaylog.contract.members import INT64_MIN, Int, QueryInt, bound, limit_note, ms_in_words

UNIX_MS_MIN: Final = 1_000_000_000_000
"""2001-09-09, the first Unix time in ms with 13 digits. What is below it is taken for seconds."""
ANCHOR_MS_MIN: Final = 100_000_000_000
"""1973-03-03. The rule of a schedule may count from a day long ago; as seconds it is year 5138."""
UNIX_US_MIN: Final = 1_000 * UNIX_MS_MIN
"""From here on a number is taken for microseconds: as milliseconds it is in year 33658."""
UNIX_NS_MIN: Final = 1_000 * UNIX_US_MIN
TIME_MS_MAX: Final = UNIX_US_MIN - 1
"""The last time that is accepted; as a bound it means none."""


def time_fault(value: int, first_ms: int = UNIX_MS_MIN) -> str | None:
    """What is wrong with a number as a Unix time in ms, to follow its name; None: nothing."""
    if first_ms <= value < UNIX_US_MIN or value == 0:
        return None
    if value < 0:
        return f"{value} is negative: give milliseconds since 1970"
    if value < first_ms:
        return f"{value} is before {day_of(first_ms)}: give milliseconds since 1970, not seconds"
    unit = "microseconds" if value < UNIX_NS_MIN else "nanoseconds"
    return f"{value} looks like {unit}: give milliseconds since 1970"


def day_of(at_ms: int) -> str:
    """The day of a time, for a refusal."""
    return datetime.fromtimestamp(at_ms // 1_000, UTC).date().isoformat()


def delay_fault(horizon_ms: int) -> str:
    """The refusal of a delay over the horizon, with a hint that a time may have been meant."""
    over = f"is over the horizon of {ms_in_words(horizon_ms)}{limit_note('horizon_ms')}"
    return f"{over}; it counts from now, and deliver_at_ms is a time"


@dataclass(frozen=True, slots=True)
class TimeMs(Int):
    """A Unix time in ms."""

    low: int | str = 0
    high: int | str = TIME_MS_MAX
    first_ms: int = UNIX_MS_MIN

    def check(self, value: Any, limits: object = None, item: int | None = None) -> int:
        """The number."""
        found = value if type(value) is int else self.whole(value, item)
        if not self.first_ms <= found <= TIME_MS_MAX:
            fault = time_fault(found, self.first_ms)
            if fault is not None:
                raise self.wrong(fault, item)
        if self.high != TIME_MS_MAX and found > bound(self.high, limits):
            return Int.check(self, found, limits, item)
        return found


@dataclass(frozen=True, slots=True)
class QueryTimeMs(QueryInt):
    """A Unix time in ms as a query parameter."""

    low: int | str = 0
    high: int | str = TIME_MS_MAX

    def check(self, value: Any, limits: object = None, item: int | None = None) -> int:
        """The number."""
        fault = time_fault(value)
        if fault is not None:
            raise self.wrong(fault, item)
        return QueryInt.check(self, value, limits, item)


@dataclass(frozen=True, slots=True)
class DelayMs(Int):
    """A time from now in ms; a negative one means now."""

    low: int | str = INT64_MIN
    high: int | str = "horizon_ms"

    def check(self, value: Any, limits: object = None, item: int | None = None) -> int:
        """The number, at least 0."""
        found = value if type(value) is int else self.whole(value, item)
        horizon_ms = bound(self.high, limits)
        if found > horizon_ms:
            raise self.wrong(delay_fault(horizon_ms), item)
        return max(found, 0)

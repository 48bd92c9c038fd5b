"""Due times and durations: numbers of milliseconds, or `datetime` and `timedelta`.

A due time is given by one of four keywords. A duration `lease_ms=5000` may be given as
`lease=timedelta(seconds=5)`. Invalid values raise an error in the call and are never sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from delaylog.storage.messages.message_fields import UNIX_MS_MIN, is_no_unix_ms, not_unix_ms

HORIZON_HINT: Final = "give exactly one of deliver_at_ms, delay_ms, at, delay"
_MS: Final = timedelta(milliseconds=1)


def due_of(
    deliver_at_ms: int | None = None,
    delay_ms: int | None = None,
    at: datetime | None = None,
    delay: timedelta | None = None,
) -> tuple[int, bool] | None:
    """(milliseconds, whether they count from now), or None if no time is given.

    Fractions of a millisecond are rounded up, so that a message is never early. A past time means
    now, and so does a negative delay. TypeError for a wrong type; ValueError for two times, for
    seconds in `deliver_at_ms`, and for an `at` without a time zone.
    """
    given = sum(value is not None for value in (deliver_at_ms, delay_ms, at, delay))
    if given == 0:
        return None
    if given > 1:
        raise ValueError(f"{given} times are given; {HORIZON_HINT}")
    if deliver_at_ms is not None:
        due_ms = _whole("deliver_at_ms", deliver_at_ms)
        if is_no_unix_ms(due_ms):
            raise ValueError(f"deliver_at_ms {not_unix_ms(due_ms)}; a datetime as at= works too")
        return due_ms, False
    if delay_ms is not None:
        return max(_whole("delay_ms", delay_ms), 0), True
    if at is not None:
        due_ms = _unix_ms(at)
        return (due_ms if due_ms >= UNIX_MS_MIN else 0), False
    assert delay is not None, "the only one that is left"
    return max(_ms_of("delay", delay), 0), True


def due_members(
    deliver_at_ms: int | None = None,
    delay_ms: int | None = None,
    at: datetime | None = None,
    delay: timedelta | None = None,
) -> dict[str, int]:
    """The due time as members of a request: `deliver_at_ms`, `delay_ms`, or neither."""
    due = due_of(deliver_at_ms, delay_ms, at, delay)
    if due is None:
        return {}
    return {"delay_ms" if due[1] else "deliver_at_ms": due[0]}


def in_ms(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Keywords in which `lease=timedelta(seconds=5)` has become `lease_ms=5000`, for these names.

    TypeError for what is no timedelta; ValueError for a negative one, and for both forms.
    """
    found = dict(given)
    for name in names:
        duration = found.pop(name, None)
        if duration is None:
            continue
        if found.get(f"{name}_ms") is not None:
            raise ValueError(f"{name} and {name}_ms are given; give one of them")
        found[f"{name}_ms"] = duration_ms(name, duration)
    return found


def duration_ms(name: str, duration: timedelta) -> int:
    """A duration in milliseconds, rounded up. TypeError, or ValueError for a negative one."""
    whole_ms = _ms_of(name, duration)
    if whole_ms < 0:
        raise ValueError(f"{name} is not negative: {duration}")
    return whole_ms


def _ms_of(name: str, duration: timedelta) -> int:
    if not isinstance(duration, timedelta):
        raise TypeError(
            f"{name} is a timedelta, not {type(duration).__name__}; milliseconds are {name}_ms"
        )
    # Not -(-duration // _MS), which would overflow for timedelta.max.
    whole, part = divmod(duration, _MS)
    return whole + bool(part)


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number of milliseconds, not {type(value).__name__}")
    return value


def _unix_ms(at: datetime) -> int:
    if not isinstance(at, datetime):
        raise TypeError(f"at is a datetime, not {type(at).__name__}")
    if at.utcoffset() is None:
        raise ValueError("at has no time zone: use datetime.now(timezone.utc), .astimezone() …")
    return -(-(at - _EPOCH) // _MS)


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

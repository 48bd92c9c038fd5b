"""Due times: the four keywords with which a caller may give one.

Invalid times raise an error in the call and are never sent.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

HORIZON_HINT: Final = "give exactly one of deliver_at_ms, delay_ms, at, delay"
_MS: Final = timedelta(milliseconds=1)


def due_of(
    deliver_at_ms: int | None = None,
    delay_ms: int | None = None,
    at: datetime | None = None,
    delay: timedelta | None = None,
) -> tuple[int, bool] | None:
    """(milliseconds, whether they count from now), or None if no time is given.

    Fractions of a millisecond are rounded up, so that a message is never early. TypeError for a
    wrong type; ValueError for two times, a negative time, or an `at` without a time zone.
    """
    given = sum(value is not None for value in (deliver_at_ms, delay_ms, at, delay))
    if given == 0:
        return None
    if given > 1:
        raise ValueError(f"{given} times are given; {HORIZON_HINT}")
    if deliver_at_ms is not None:
        return _whole("deliver_at_ms", deliver_at_ms), False
    if delay_ms is not None:
        return _whole("delay_ms", delay_ms), True
    if at is not None:
        return _unix_ms(at), False
    if not isinstance(delay, timedelta):
        raise TypeError(f"delay is a timedelta, not {type(delay).__name__}")
    # Not -(-delay // _MS), which would overflow for timedelta.max.
    whole, part = divmod(delay, _MS)
    return _whole("delay", whole + bool(part)), True


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


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number of milliseconds, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{name} is not negative: {value}")
    return value


def _unix_ms(at: datetime) -> int:
    if not isinstance(at, datetime):
        raise TypeError(f"at is a datetime, not {type(at).__name__}")
    if at.utcoffset() is None:
        raise ValueError("at has no time zone: use datetime.now(timezone.utc), .astimezone() …")
    return _whole("at", -(-(at - _EPOCH) // _MS))


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

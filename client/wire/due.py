"""Due times: numbers of milliseconds, or `datetime` and `timedelta`.

A due time is given by one of four keywords, and a bound of due times by one of two. Invalid values
raise an error in the call and are never sent.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from delaylog.client.keywords import ListKeywords
from delaylog.client.wire.durations import delay_of, whole_ms
from delaylog.contract.times import UNIX_MS_MIN, day_of, time_fault

HORIZON_HINT: Final = "give exactly one of deliver_at_ms, delay_ms, at, delay"
_BOUNDS: Final = ("due_from", "due_to")
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
        return time_ms("at", "deliver_at_ms", deliver_at_ms), False
    if at is not None:
        return unix_ms("at", "deliver_at_ms", at), False
    wait_ms = delay_of(delay, delay_ms)
    assert wait_ms is not None, "one of the two is given"
    return wait_ms, True


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


def list_query(filter: ListKeywords, keywords: type[ListKeywords] = ListKeywords) -> dict[str, Any]:
    """The filters of a list as query parameters; `keywords` are those that it has.

    TypeError for an unknown filter, or a bound of the wrong type; ValueError for both forms of a
    bound, for seconds, and for a datetime without a time zone.
    """
    for name in filter.keys() - keywords.__annotations__.keys():
        raise TypeError(f"a list has no filter {name!r}")
    query: dict[str, Any] = {**filter, "bodies": filter.get("bodies") or None}
    for name in _BOUNDS:
        at, ms = query.pop(name, None), query.pop(f"{name}_ms", None)
        if at is not None and ms is not None:
            raise ValueError(f"give {name} or {name}_ms, not both")
        if at is not None:
            query[name] = unix_ms(name, f"{name}_ms", at)
        elif ms is not None:
            query[name] = time_ms(name, f"{name}_ms", ms)
    return query


def time_ms(name: str, field: str, value: int, first_ms: int = UNIX_MS_MIN) -> int:
    """The number of the argument `field`, whose form as a datetime is `name`."""
    ms = whole_ms(field, value)
    fault = time_fault(ms, first_ms)
    if fault is not None:
        raise ValueError(f"{field} {fault}; a datetime as {name}= works too")
    return ms


def unix_ms(name: str, field: str, at: datetime, first_ms: int = UNIX_MS_MIN) -> int:
    """A datetime in Unix ms, rounded up. TypeError and ValueError without a time zone.

    ValueError also for one that was probably made from another unit than its own.
    """
    if not isinstance(at, datetime):
        raise TypeError(
            f"{name} is a datetime with a time zone, not {type(at).__name__}: "
            f"datetime.fromisoformat reads a text, and Unix milliseconds are {field}"
        )
    if at.utcoffset() is None:
        raise ValueError(
            f"{name} has no time zone: use datetime.now(timezone.utc), .astimezone() …"
        )
    ms = -(-(at - _EPOCH) // _MS)
    if ms and ms < first_ms:
        raise ValueError(
            f"{name} {at.isoformat()} is before {day_of(first_ms)}: it was perhaps made from "
            "another unit, since fromtimestamp takes seconds"
        )
    return ms


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

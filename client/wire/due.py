"""Due times: numbers of milliseconds, or `datetime` and `timedelta`.

A due time is given by one of four keywords, and a bound of due times by one of two. Invalid values
raise an error in the call and are never sent.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from delaylog.client.keywords import ListKeywords
from delaylog.client.wire.durations import span_ms
from delaylog.storage.messages.message_fields import UNIX_MS_MIN, is_no_unix_ms, not_unix_ms

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
        return _time_ms("at", "deliver_at_ms", deliver_at_ms), False
    if delay_ms is not None:
        return max(_whole("delay_ms", delay_ms), 0), True
    if at is not None:
        due_ms = unix_ms("at", "deliver_at_ms", at)
        return (due_ms if due_ms >= UNIX_MS_MIN else 0), False
    assert delay is not None, "the only one that is left"
    return max(span_ms("delay_ms", delay), 0), True


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
            query[name] = max(unix_ms(name, f"{name}_ms", at), 0)
        elif ms is not None:
            query[name] = _time_ms(name, f"{name}_ms", ms)
    return query


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number of milliseconds, not {type(value).__name__}")
    return value


def _time_ms(name: str, field: str, value: int) -> int:
    """The number of the argument `field`, whose form as a datetime is `name`."""
    ms = _whole(field, value)
    if is_no_unix_ms(ms):
        raise ValueError(f"{field} {not_unix_ms(ms)}; a datetime as {name}= works too")
    return ms


def unix_ms(name: str, field: str, at: datetime) -> int:
    """A datetime in Unix ms, rounded up. TypeError and ValueError without a time zone."""
    if not isinstance(at, datetime):
        raise TypeError(
            f"{name} is a datetime with a time zone, not {type(at).__name__}: "
            f"datetime.fromisoformat reads a text, and Unix milliseconds are {field}"
        )
    if at.utcoffset() is None:
        raise ValueError(
            f"{name} has no time zone: use datetime.now(timezone.utc), .astimezone() …"
        )
    return -(-(at - _EPOCH) // _MS)


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

"""Times in arguments: durations, time limits of calls, and due times.

A duration is a `timedelta`; only the wire has numbers of milliseconds. A due time is given by one
of three keywords (`deliver_at_ms`, `at`, `delay`), and a bound of due times by one of two. Invalid
values raise an error in the call and are never sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from delaylog.client.keywords import ListKeywords, TimeLimit
from delaylog.client.wire.checks import a_number, check_keywords
from delaylog.contract.members import whole_of
from delaylog.contract.times import UNIX_MS_MIN, day_of, time_fault

# -------------------------------------------------------------------- durations and time limits

LIMIT_S_MAX: Final = 86_400.0
"""Longest time limit of a call: sockets do not accept arbitrarily long ones."""
NEVER_MS: Final = -1
"""The `ttl_ms` of a message that does not expire; in Python, timedelta.max."""
MS: Final = timedelta(milliseconds=1)
_DAY_MS: Final = 86_400_000
SPAN_MS_MIN: Final = timedelta.min // MS
SPAN_MS_MAX: Final = timedelta.max // MS


def duration_ms(name: str, span: timedelta | None) -> int | None:
    """A duration in milliseconds, rounded up; None if it is absent.

    TypeError for what is no timedelta, ValueError for a negative one.
    """
    if span is None:
        return None
    ms = span_ms(name, span)
    if ms < 0:
        raise ValueError(f"{name} is not negative: {span}")
    return ms


def delay_of(delay: timedelta | None) -> int | None:
    """A delay in milliseconds, in which a negative one is 0; None if it is absent."""
    return None if delay is None else max(span_ms("delay", delay), 0)


def whole_ms(name: str, value: int) -> int:
    """A number of milliseconds, which may be a float without a fraction. TypeError for others."""
    found = whole_of(value)
    if found is None:
        said = value if isinstance(value, float) else type(value).__name__
        raise TypeError(f"{name} is a whole number of milliseconds, not {said}")
    return found


def span_ms(name: str, span: timedelta) -> int:
    """A timedelta in milliseconds, rounded up. TypeError, in words about `name`, for others."""
    check_span(name, span)
    # By its parts, since each send does it: a division of timedeltas takes twice the time.
    return span.days * _DAY_MS + span.seconds * 1_000 - (-span.microseconds // 1_000)


def span_of(ms: float) -> timedelta:
    """A number of milliseconds as a timedelta.

    One that no timedelta can hold becomes the nearest, which the broker judges alike.
    """
    return timedelta(milliseconds=max(SPAN_MS_MIN, min(ms, SPAN_MS_MAX)))


def check_span(name: str, span: object) -> None:
    """TypeError unless it is a timedelta."""
    if not isinstance(span, timedelta):
        known = isinstance(span, (int, float)) and not isinstance(span, bool)
        seconds = f"; {span} seconds are timedelta(seconds={span})" if known else ""
        raise TypeError(f"{name} is a timedelta, not {type(span).__name__}{seconds}")


def in_ms(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Keywords in which `lease=timedelta(seconds=5)` has become `lease_ms=5000`, and None stays.

    TypeError for what is no timedelta; ValueError for a negative one, but a negative `delay` is 0.
    A `ttl` of timedelta.max never ends.
    """
    found = dict(given)
    for name in names:
        if name in found:
            span = found.pop(name)
            ms = delay_of(span) if name == "delay" else duration_ms(name, span)
            found[f"{name}_ms"] = NEVER_MS if name == "ttl" and span == timedelta.max else ms
    return found


def spans_in_ms(call: str, members: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Members of the API's JSON, with these durations in milliseconds. TypeError for numbers."""
    for name in names:
        if f"{name}_ms" in members:
            raise a_number(call, f"{name}_ms")
    return in_ms(members, *names)


def duration_s(name: str, span: timedelta | None, *, or_zero: bool = False) -> float | None:
    """A duration in seconds; None if it is absent.

    TypeError for what is no timedelta, ValueError for a duration that is not more than 0
    (`or_zero`: 0 is allowed).
    """
    if span is None:
        return None
    check_span(name, span)
    seconds = span.total_seconds()
    if not 0 < seconds <= LIMIT_S_MAX and not (or_zero and seconds == 0):
        raise ValueError(f"{name} lies above 0 s and up to {LIMIT_S_MAX:.0f} s, not {seconds:g} s")
    return seconds


def split_limit(given: Mapping[str, Any]) -> tuple[float | None, Any]:
    """The seconds of the `TimeLimit` among keywords, None for none; and the other keywords."""
    if "timeout" not in given:
        return None, given
    rest = dict(given)
    return duration_s("timeout", rest.pop("timeout")), rest


def limit_of(call: str, limits: TimeLimit) -> float | None:
    """The seconds of a time limit, None for none. TypeError for another keyword."""
    if not limits:
        return None
    check_keywords(call, limits, TimeLimit)
    return duration_s("timeout", limits.get("timeout"))


# ------------------------------------------------------------------------------------ due times

HORIZON_HINT: Final = "give exactly one of deliver_at_ms, at, delay"
_BOUNDS: Final = ("due_from", "due_to")


def due_of(
    deliver_at_ms: int | None = None, at: datetime | None = None, delay: timedelta | None = None
) -> tuple[int, bool] | None:
    """(milliseconds, whether they count from now), or None if no time is given.

    Fractions of a millisecond are rounded up, so that a message is never early. A past time means
    now, and so does a negative delay. TypeError for a wrong type; ValueError for two times, for
    seconds in `deliver_at_ms`, and for an `at` without a time zone.
    """
    given = sum(value is not None for value in (deliver_at_ms, at, delay))
    if given == 0:
        return None
    if given > 1:
        raise ValueError(f"{given} times are given; {HORIZON_HINT}")
    if deliver_at_ms is not None:
        return time_ms("at", "deliver_at_ms", deliver_at_ms), False
    if at is not None:
        return unix_ms("at", "deliver_at_ms", at), False
    delay_ms = delay_of(delay)
    assert delay_ms is not None, "one of the three is given"
    return delay_ms, True


def due_members(
    deliver_at_ms: int | None = None, at: datetime | None = None, delay: timedelta | None = None
) -> dict[str, int]:
    """The due time as members of a request: `deliver_at_ms`, `delay_ms`, or neither."""
    due = due_of(deliver_at_ms, at, delay)
    if due is None:
        return {}
    return {"delay_ms" if due[1] else "deliver_at_ms": due[0]}


def list_query(filter: ListKeywords, keywords: type[ListKeywords] = ListKeywords) -> dict[str, Any]:
    """The filters of a list as query parameters; `keywords` are those that it has.

    TypeError for an unknown filter, or a bound of the wrong type; ValueError for both forms of a
    bound, for seconds, and for a datetime without a time zone.
    """
    check_keywords("a list", filter, keywords)
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
    ms = span_ms(name, at - _EPOCH)
    if ms and ms < first_ms:
        raise ValueError(
            f"{name} {at.isoformat()} is before {day_of(first_ms)}: it was perhaps made from "
            "another unit, since fromtimestamp takes seconds"
        )
    return ms


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

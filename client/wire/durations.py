"""Durations: a plain number with its unit in the name, or a timedelta. And time limits of calls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from delaylog.client.keywords import TimeLimit
from delaylog.client.wire.checks import check_keywords, check_seconds
from delaylog.contract.members import whole_of

LIMIT_S_MAX: Final = 86_400.0
"""Longest time limit of a call: sockets do not accept arbitrarily long ones."""
_MS: Final = timedelta(milliseconds=1)


def duration_ms(name: str, span: timedelta | None, ms: int | None) -> int | None:
    """The milliseconds of the arguments `name` and `{name}_ms`; None if both are absent.

    Fractions of a millisecond are rounded up. TypeError for a wrong type, ValueError for both or
    for a negative duration.
    """
    if ms is not None and span is not None:
        raise ValueError(f"give {name} or {name}_ms, not both")
    if span is not None:
        ms = span_ms(f"{name}_ms", span)
    elif ms is None:
        return None
    else:
        name = f"{name}_ms"
        ms = whole_ms(name, ms)
    if ms < 0:
        raise ValueError(f"{name} is not negative: {ms if span is None else span}")
    return ms


def delay_of(span: timedelta | None, ms: int | None) -> int | None:
    """The milliseconds of `delay` and `delay_ms`, which are negative for now; None if both are
    absent. TypeError for a wrong type, ValueError for both.
    """
    if ms is not None and span is not None:
        raise ValueError("give delay or delay_ms, not both")
    if span is not None:
        return max(span_ms("delay_ms", span), 0)
    return None if ms is None else max(whole_ms("delay_ms", ms), 0)


def whole_ms(name: str, value: int) -> int:
    """A number of milliseconds, which may be a float without a fraction. TypeError for others."""
    found = whole_of(value)
    if found is None:
        said = value if isinstance(value, float) else type(value).__name__
        raise TypeError(f"{name} is a whole number of milliseconds, not {said}")
    return found


def span_ms(field: str, span: timedelta) -> int:
    """A timedelta in milliseconds, rounded up. TypeError, in words about `field`, for others."""
    check_span(field, span)
    # Not -(-span // _MS), which would overflow for timedelta.max.
    whole, part = divmod(span, _MS)
    return whole + bool(part)


def check_span(field: str, span: object) -> None:
    """TypeError unless it is a timedelta; `field` is the name of the number of the same meaning."""
    if not isinstance(span, timedelta):
        name, _, unit = field.rpartition("_")
        wrong = f"{name} is a timedelta, not {type(span).__name__}"
        if unit == "s":
            raise TypeError(f"{wrong}; seconds are {field}")
        known = isinstance(span, (int, float)) and not isinstance(span, bool)
        seconds = f", {span} seconds are timedelta(seconds={span})" if known else ""
        raise TypeError(f"{wrong}; milliseconds are {field}{seconds}")


def in_numbers(given: Mapping[str, Any], *fields: str) -> dict[str, Any]:
    """Keywords in which `lease=timedelta(seconds=5)` has become `lease_ms=5000`.

    `fields` are the names of the numbers, in milliseconds or in seconds. TypeError for what is no
    timedelta; ValueError for a negative one, and for both forms.
    """
    found = dict(given)
    for field in fields:
        name, _, unit = field.rpartition("_")
        span = found.pop(name, None)
        if span is None:
            continue
        if found.get(field) is not None:
            raise ValueError(f"give {name} or {field}, not both")
        ms = delay_of(span, None) if name == "delay" else duration_ms(name, span, None)
        assert ms is not None, "there is a span"
        found[field] = ms if unit == "ms" else ms / 1000
    return found


def seconds_of(
    name: str, span: timedelta | None, seconds: float | None, *, or_zero: bool = False
) -> float | None:
    """The seconds of the arguments `name` and `{name}_s`; None if both are absent.

    TypeError for a wrong type, ValueError for both, and for a duration that is not more than 0
    (`or_zero`: 0 is allowed).
    """
    if span is None and seconds is None:
        return None
    if span is not None and seconds is not None:
        raise ValueError(f"give {name} or {name}_s, not both")
    if span is not None:
        check_span(f"{name}_s", span)
        seconds = span.total_seconds()
    else:
        name = f"{name}_s"
        check_seconds(name, seconds)
    assert seconds is not None
    if not 0 < seconds <= LIMIT_S_MAX and not (or_zero and seconds == 0):
        raise ValueError(f"{name} lies above 0 s and up to {LIMIT_S_MAX:.0f} s, not {seconds:g} s")
    return seconds


def split_limit(given: Mapping[str, Any]) -> tuple[float | None, Any]:
    """The seconds of the `TimeLimit` among keywords, None for none; and the other keywords."""
    if "timeout" not in given and "timeout_s" not in given:
        return None, given
    rest = dict(given)
    return seconds_of("timeout", rest.pop("timeout", None), rest.pop("timeout_s", None)), rest


def limit_of(call: str, limits: TimeLimit) -> float | None:
    """The seconds of a time limit, None for none. TypeError for another keyword."""
    if not limits:
        return None
    check_keywords(call, limits, TimeLimit)
    return seconds_of("timeout", limits.get("timeout"), limits.get("timeout_s"))


def lease_of(lease: timedelta | None, lease_ms: int | None) -> int:
    """The milliseconds of an extension. TypeError if there are none."""
    wanted_ms = duration_ms("lease", lease, lease_ms)
    if wanted_ms is None:
        raise TypeError("extend needs lease or lease_ms")
    return wanted_ms

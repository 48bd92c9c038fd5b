"""Durations: a plain number with its unit in the name, or a timedelta."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

_MS: Final = timedelta(milliseconds=1)


def duration_ms(name: str, span: timedelta | None, ms: int | None) -> int | None:
    """The milliseconds of the arguments `name` and `{name}_ms`; None if both are absent.

    Fractions of a millisecond are rounded up. TypeError for a wrong type, ValueError for both or
    for a negative duration.
    """
    if ms is not None and span is not None:
        raise ValueError(f"give {name} or {name}_ms, not both")
    if span is not None:
        if not isinstance(span, timedelta):
            raise TypeError(f"{name} is a timedelta, not {type(span).__name__}")
        # Not -(-span // _MS), which would overflow for timedelta.max.
        whole, part = divmod(span, _MS)
        ms = whole + bool(part)
    elif ms is None:
        return None
    elif isinstance(ms, bool) or not isinstance(ms, int):
        raise TypeError(f"{name}_ms is a whole number of milliseconds, not {type(ms).__name__}")
    else:
        name = f"{name}_ms"
    if ms < 0:
        raise ValueError(f"{name} is not negative: {ms if span is None else span}")
    return ms


def lease_of(lease: timedelta | None, lease_ms: int | None) -> int:
    """The milliseconds of an extension. TypeError if there are none."""
    wanted_ms = duration_ms("lease", lease, lease_ms)
    if wanted_ms is None:
        raise TypeError("extend needs lease or lease_ms")
    return wanted_ms

"""Timeouts of blocking commands."""

from __future__ import annotations

from math import ceil
from typing import Final

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.number_texts import INT64_MAX, to_float

_NO_TIMEOUT: Final = b"ERR timeout is not a float or out of range"


def to_timeout_ms(run: Run, text: bytes) -> int:
    """Parse a timeout in seconds; 0 = none. Raises CommandError."""
    try:
        seconds = to_float(text, _NO_TIMEOUT)
    except OverflowError:
        raise CommandError(_NO_TIMEOUT) from None
    # As in Redis, a number beyond 64 bits becomes negative (C's cast of it is INT64_MIN).
    timeout_ms = -1 if abs(seconds) * 1000 >= 2.0**63 else ceil(seconds * 1000)
    if timeout_ms < 0:
        raise CommandError(b"ERR timeout is negative")
    if timeout_ms > INT64_MAX - run.now_ms:
        raise CommandError(b"ERR timeout is out of range")
    return timeout_ms

"""How long blocking commands wait."""

from __future__ import annotations

import math

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.numbers import INT64_MAX, to_float

_NOT_FLOAT = b"ERR timeout is not a float or out of range"


def take_timeout_ms(text: bytes) -> int:
    """Seconds with decimals, as whole milliseconds; 0 = for ever. Raises CommandError."""
    seconds = to_float(text, _NOT_FLOAT)
    # Redis calls one that is too large negative too, since it has become so on its way.
    if math.isinf(seconds) or seconds < 0 or seconds * 1000 > INT64_MAX:
        raise CommandError(b"ERR timeout is negative")
    return math.ceil(seconds * 1000)

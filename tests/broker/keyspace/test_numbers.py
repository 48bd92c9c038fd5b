"""Numbers are read as C reads them; the answers are those of redis-server 7.0.15 to ZADD."""

from __future__ import annotations

from math import inf

import pytest

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.numbers import to_float


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"4e-324", 5e-324),
        (b"0e-999", 0.0),
        (b"0e999", 0.0),
        (b"-.0e999", 0.0),
        (b"inf", inf),
        (b"-Infinity", -inf),
        (b"0x1p-1074", 5e-324),
        (b"0x0p99999", 0.0),
        (b"1.5", 1.5),
    ],
)
def test_doubles(text: bytes, value: float) -> None:
    assert to_float(text) == value


@pytest.mark.parametrize(
    "text",
    [
        b"1e400",
        b"-1e400",
        b"1e-400",
        b".001e-400",
        b"0x1p99999",
        b"0x1p-99999",
        b"0x",
        b"nan",
        b"1 ",
    ],
)
def test_no_doubles(text: bytes) -> None:
    with pytest.raises(CommandError, match="ERR value is not a valid float"):
        to_float(text)

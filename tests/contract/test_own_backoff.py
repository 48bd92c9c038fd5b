"""A message's own backoff: its bytes, told apart from headers, and many at once."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest

from delaylog.contract.own_backoff import (
    OWN_BACKOFF_SIZE,
    encode_own_backoff,
    split_own_backoff,
)
from delaylog.storage.messages.batch import (
    TextColumn,
    has_own_backoffs,
    own_backoff_entries,
    own_backoffs,
)

SAID = {"first_ms": 500, "max_ms": 2**40, "factor": 1.5, "jitter": 0.25}


def test_the_bytes() -> None:
    """A known one, which is msgpack as well."""
    raw = encode_own_backoff(SAID)
    assert raw.hex() == (
        "94d300000000000001f4d30000010000000000cb3ff8000000000000cb3fd0000000000000"
    )
    assert msgpack.unpackb(raw) == list(SAID.values())
    assert len(raw) == OWN_BACKOFF_SIZE


def test_what_is_not_said_is_absent() -> None:
    for name, value in SAID.items():
        assert split_own_backoff(encode_own_backoff({name: value})) == ({name: value}, b"")


def test_it_stands_in_front_of_headers() -> None:
    """Headers of any size are a map; nothing of a map looks like it."""
    for count in (0, 1, 15, 16, 70_000):
        headers = msgpack.packb({str(k): "v" for k in range(count)})
        assert split_own_backoff(headers) == ({}, headers)
        assert split_own_backoff(encode_own_backoff(SAID) + headers) == (SAID, headers)
    assert split_own_backoff(b"") == ({}, b"")


@pytest.mark.parametrize(
    "raw", [b"\x94", b"\x94\x01\x02\x03\x04", b"\x94" * 37, encode_own_backoff(SAID)[:36]]
)
def test_an_array_that_is_no_backoff_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="a backoff"):
        split_own_backoff(raw)


def test_columns() -> None:
    headers = msgpack.packb({"a": "b"})
    values = [b"", encode_own_backoff(SAID), headers, encode_own_backoff({}) + headers, b""]
    column = TextColumn(np.array([len(each) for each in values]), b"".join(values))
    own = has_own_backoffs(column, len(values))
    assert own.tolist() == [False, True, False, True, False]
    sizes = column.sizes(len(values))
    found = own_backoffs(column.block, (np.cumsum(sizes) - sizes)[own])
    assert found["first_ms"].tolist() == [500, -1]
    assert own_backoff_entries(
        2, {"first_ms": np.array([500, 7]), "factor": 1.5}
    ).tobytes() == b"".join(
        encode_own_backoff({"first_ms": first_ms, "factor": 1.5}) for first_ms in (500, 7)
    )
    assert found["jitter"].tolist() == [0.25, -1.0]

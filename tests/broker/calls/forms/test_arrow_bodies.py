"""Arrow bodies: what each column comes to, and what is refused, by the library that others use.

The conversion is held against a plain one, row by row, under Hypothesis.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.calls.answers import Problem
from delaylog.broker.calls.forms.bulk_bodies import decode_arrow
from delaylog.broker.engine.limits import Limits
from delaylog.contract.message_fields import COLUMNS
from delaylog.contract.own_backoff import split_own_backoff
from delaylog.storage.messages.batch import MessageBatch, expand
from tests.broker.calls.forms.arrow_streams import HEADERS, UTC_US, one, stream

LIMITS = Limits()


def backoffs(*rows: dict[str, float]) -> pa.RecordBatch:
    """A record batch of messages with these backoffs."""
    return one(backoff=pa.array(rows))


def refused(raw: bytes, limits: Limits = LIMITS) -> Problem:
    with pytest.raises(Problem) as caught:
        decode_arrow(raw, limits)
    return caught.value


def as_rows(batch: MessageBatch) -> list[dict[str, Any]]:
    """The rows of a batch, for comparing."""
    texts = {name: getattr(batch, name).values(batch.n) for name in ("body", "id", "key", "tags")}
    due = batch.deliver_at_ms
    assert due is not None, "the streams here have times"
    split = [split_own_backoff(raw) for raw in batch.headers.values(batch.n)]
    columns: dict[str, list[Any]] = texts | {
        "deliver_at_ms": expand(due, batch.n).tolist(),
        "headers": [msgpack.unpackb(raw) if raw else {} for _, raw in split],
        "backoff": [backoff for backoff, _ in split],
    }
    for name in NUMBERS:
        column = getattr(batch, name)
        columns[name] = expand(ABSENT[name] if column is None else column, batch.n).tolist()
    return [{name: values[row] for name, values in columns.items()} for row in range(batch.n)]


EARLIEST_MS = 10**12
"""2001-09-09: earlier times are refused."""


NUMBERS = ("priority", "ttl_ms", "max_retry")
ABSENT = {name: field.absent for name, field in COLUMNS.items()}
TEXTS = st.text("aé😀b", max_size=5)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "value": st.binary(max_size=6),
            # Microseconds.
            "deliver_at": st.integers(EARLIEST_MS * 1_000, 2 * EARLIEST_MS * 1_000),
            "id": st.none() | TEXTS,
            "key": st.none() | TEXTS,
            "priority": st.none() | st.integers(-5, 5),
            "ttl_ms": st.none() | st.integers(-1, 5),
            "max_retry": st.none() | st.integers(0, 9),
            "tags": st.none() | st.lists(TEXTS.filter(bool), max_size=3),
            "headers": st.none() | st.lists(st.tuples(TEXTS, st.none() | TEXTS), max_size=3),
            "backoff": st.none()
            | st.fixed_dictionaries(
                {},
                optional={"first_ms": st.integers(0, 9), "factor": st.just(2.0) | st.just(1.5)},
            ),
        }
    ),
    min_size=1,
    max_size=6,
)


@given(
    ROWS,
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, "lz4", "zstd"]),
    st.sampled_from([1, 2, 10]),
    st.booleans(),
)
def test_against_rows(
    rows: list[dict[str, Any]],
    wide: bool,
    as_map: bool,
    compression: str | None,
    step: int,
    sliced: bool,
) -> None:
    """Any mixture of values, nulls, types, cuts into batches and compression."""
    text = pa.large_string() if wide else pa.string()
    types = {
        "value": pa.large_binary() if wide else pa.binary(),
        "deliver_at": UTC_US,
        "id": text,
        "key": text,
        "priority": pa.int32(),
        "ttl_ms": pa.int64(),
        "max_retry": pa.int32(),
        "tags": pa.list_(text),
        "headers": pa.map_(text, pa.binary()) if as_map else HEADERS,
        "backoff": pa.struct([("factor", pa.float32()), ("first_ms", pa.int32())]),
    }

    def cell(name: str, value: Any) -> Any:
        if name != "headers" or value is None:
            return value
        pairs = [(key, None if said is None else said.encode()) for key, said in value]
        return pairs if as_map else [{"key": key, "value": said} for key, said in pairs]

    columns = {
        name: pa.array([cell(name, row[name]) for row in rows], kind)
        for name, kind in types.items()
    }
    whole = pa.record_batch(columns)
    if sliced:
        whole = pa.concat_batches([whole, whole]).slice(len(rows), len(rows))
    raw = stream(
        *(whole.slice(at, step) for at in range(0, len(rows), step)), compression=compression
    )
    expected = [
        {
            "body": row["value"],
            "deliver_at_ms": -(-row["deliver_at"] // 1000),
            "id": (row["id"] or "").encode(),
            "key": (row["key"] or "").encode(),
            "tags": "\n".join(row["tags"] or []).encode(),
            **{name: ABSENT[name] if row[name] is None else row[name] for name in NUMBERS},
            "backoff": row["backoff"] or {},
            "headers": {key: said or "" for key, said in row["headers"] or []},
        }
        for row in rows
    ]
    assert as_rows(decode_arrow(raw, LIMITS)) == expected


@pytest.mark.parametrize(
    ("unit", "said", "expected"),
    [
        ("s", 10**9 + 7, EARLIEST_MS + 7_000),
        ("ms", 10**12 + 7, EARLIEST_MS + 7),
        ("us", 10**15 + 7_000, EARLIEST_MS + 7),
        ("us", 10**15 + 7_001, EARLIEST_MS + 8),
        ("ns", 10**18 + 7_000_000, EARLIEST_MS + 7),
        ("ns", 10**18 + 7_000_001, EARLIEST_MS + 8),
        ("us", 10**15 - 1_000, EARLIEST_MS - 1),
        ("us", -(2**63), -9223372036854775),
        ("ns", -(2**63), -9223372036854),
    ],
)
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times(unit: str, said: int, expected: int, zone: str | None) -> None:
    """Any unit and zone; rounded up, so that nothing comes early."""
    raw = stream(one(deliver_at=pa.array([said, said], pa.timestamp(unit, tz=zone))))
    assert decode_arrow(raw, LIMITS).deliver_at_ms == expected


def test_delays() -> None:
    """A delay instead of a time."""
    batch = decode_arrow(stream(one(delay_ms=pa.array([1, 2], pa.int64()))), LIMITS)
    assert np.asarray(batch.delay_ms).tolist() == [1, 2]
    assert batch.deliver_at_ms is None


def test_a_value_may_be_text() -> None:
    """As Spark's `string` columns are."""
    batch = decode_arrow(stream(one(value=pa.array(["é", ""], pa.string()))), LIMITS)
    assert batch.body.values(2) == ["é".encode(), b""]


def test_headers_have_the_bytes_of_those_in_json() -> None:
    """So that one limit of their size holds for both."""
    sizes = [0, 1, 31, 32, 255, 256, 30_000]
    rows = [{"k" * (1 + size % 300): "v" * size for size in sizes}, {}]
    rows += [{f"{n}": "" for n in range(count)} for count in (1, 15, 16, 300)]
    pairs = [
        [{"key": key, "value": text.encode()} for key, text in row.items()] or None for row in rows
    ]
    batch = decode_arrow(stream(one(headers=pa.array(pairs, HEADERS))), LIMITS)
    wanted = [msgpack.packb(row) if row else b"" for row in rows]
    assert batch.headers.values(batch.n) == wanted


@pytest.mark.parametrize("mode", ["keep", "replace", "reject", None])
def test_one_merge_mode_is_that_of_the_body(mode: str | None) -> None:
    merge = pa.array([mode, mode], pa.string())
    assert decode_arrow(stream(one(merge=merge)), LIMITS).merge == mode


BAD: dict[str, tuple[pa.RecordBatch, str, int | None]] = {
    "no value": (pa.record_batch({"delay_ms": pa.array([1])}), "value", None),
    "no time": (pa.record_batch({"value": pa.array([b"x"])}), "deliver_at", None),
    "both times": (
        one(deliver_at=pa.array([1], UTC_US), delay_ms=pa.array([1])),
        "deliver_at",
        None,
    ),
    "unknown column": (one(colour=pa.array([1])), "colour", None),
    "a null value": (one(value=pa.array([b"x", None], pa.binary())), "value", 1),
    "a null time": (one(deliver_at=pa.array([1, 2, None], UTC_US)), "deliver_at", 2),
    "a null delay": (one(delay_ms=pa.array([None, 1], pa.int64())), "delay_ms", 0),
    "value a number": (one(value=pa.array([1])), "value", None),
    "value a dictionary": (one(value=pa.array([b"x"]).dictionary_encode()), "value", None),
    "time a number": (one(deliver_at=pa.array([1])), "deliver_at", None),
    "time too far off": (one(deliver_at=pa.array([2**60], pa.timestamp("s"))), "deliver_at", 0),
    "id binary": (one(id=pa.array([b"x"])), "id", None),
    "a long id": (one(id=pa.array(["x", "y" * 70_000])), "id", 1),
    "a low priority": (one(priority=pa.array([0, -(2**31)], pa.int64())), "priority", 1),
    "a backoff below 0": (backoffs({"first_ms": 1}, {"first_ms": -1}), "backoff", 1),
    "a backoff that is no number": (backoffs({"factor": float("nan")}), "backoff", 0),
    "a backoff of texts": (one(backoff=pa.array([{"first_ms": "1"}])), "backoff", None),
    "a backoff of something else": (one(backoff=pa.array([{"last_ms": 1}])), "backoff", None),
    "a backoff with a part twice": (
        one(backoff=pa.StructArray.from_arrays([[1], [2]], names=["first_ms", "first_ms"])),
        "backoff",
        None,
    ),
    "a backoff of a part of a ms": (one(backoff=pa.array([{"first_ms": 1.5}])), "backoff", None),
    "a priority of 64 bits": (one(priority=pa.array([2**64 - 1], pa.uint64())), "priority", None),
    "max_retry negative": (one(max_retry=pa.array([-1])), "max_retry", 0),
    "two merge modes": (one(merge=pa.array(["keep", "keep", None])), "merge", 2),
    "a merge mode that is none": (one(merge=pa.array(["join"])), "merge", 0),
    "tags a text": (one(tags=pa.array(["a"])), "tags", None),
    "a newline in a tag": (one(tags=pa.array([["a"], ["b", "c\nd"]])), "tags", 1),
    "an empty tag": (one(tags=pa.array([["a"], [], ["b", ""]])), "tags", 2),
    "a null tag": (one(tags=pa.array([["a", None]])), "tags", 0),
    "headers a text": (one(headers=pa.array(["a"])), "headers", None),
    "a null key of a header": (
        one(headers=pa.array([[], [{"key": None, "value": b""}]], HEADERS)),
        "headers",
        1,
    ),
    "a long header": (
        one(headers=pa.array([[], [{"key": "k", "value": b"x" * 70_000}]], HEADERS)),
        "headers",
        1,
    ),
    "no row": (one(value=pa.array([], pa.binary()), delay_ms=pa.array([], pa.int64())), "n", None),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(case: str) -> None:
    """Named: the column, and the row where one is at fault."""
    batch, field, row = BAD[case]
    problem = refused(stream(batch))
    assert problem.code == "bad_request"
    assert (problem.members.get("field"), problem.members.get("item")) == (field, row)


def test_rows_are_counted_through_batches() -> None:
    """The row of a later record batch is told by its place in the whole body."""
    bad = one(value=pa.array([b"x", None], pa.binary()))
    assert refused(stream(one(), bad)).members["item"] == 2


def test_unknown_columns_name_the_known_ones() -> None:
    """Who mistyped a column sees what there is."""
    detail = refused(stream(one(colour=pa.array([1])))).detail
    for name in ("value", "deliver_at", "delay_ms", "headers", "max_retry"):
        assert name in detail


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compression_bomb(compression: str) -> None:
    """A small body that would take a lot of memory is refused before it takes it."""
    limits = Limits(request_bytes_max=1 << 20)
    raw = stream(one(value=pa.array([bytes(1 << 19)] * 8, pa.binary())), compression=compression)
    assert len(raw) < 1 << 16
    before = pa.total_allocated_bytes()
    assert refused(raw, limits).code == "too_large"
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_too_many_rows() -> None:
    """Also when each record batch is small."""
    limits = Limits(bulk_rows_max=5)
    assert decode_arrow(stream(*[one()] * 5), limits).n == 5
    assert refused(stream(*[one()] * 6), limits).members["field"] == "n"


def test_bytes_behind_the_end() -> None:
    """As of a bulk body."""
    assert refused(stream(one()) + b"x").code == "bad_request"


@pytest.mark.parametrize("raw", [b"", b"x", b"\xff\xff\xff\xff", b"{}" * 50])
def test_no_arrow_at_all(raw: bytes) -> None:
    """Something else under the name of Arrow."""
    assert refused(raw).code == "bad_request"


def test_damage() -> None:
    """A byte changed anywhere, or the end lost: refused, or read as rows, and nothing worse."""
    raw = stream(
        one(
            value=pa.array([b"abc", b"d"]),
            id=pa.array(["x", "yz"]),
            headers=pa.array([[{"key": "k", "value": b"v"}], []], HEADERS),
            tags=pa.array([["a"], ["b", "c"]]),
        ),
        compression="lz4",
    )
    broken = [raw[:at] for at in range(len(raw))]
    broken += [
        raw[:at] + bytes([value]) + raw[at + 1 :]
        for at in range(len(raw))
        for value in (0, 0x7F, 0x80, 0xFF)
    ]
    outcomes = {outcome(wire) for wire in broken}
    assert outcomes == {"read", "bad_request", "too_large"}


def test_a_buffer_of_an_odd_size() -> None:
    """Offsets may be followed by anything, also by half an offset."""
    value = pa.Array.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\7\7"), pa.py_buffer(b"ab")]
    )
    raw = stream(pa.record_batch({"value": value, "delay_ms": pa.array([1, 2])}))
    # The writer cuts what it need not write, so the size that it says is made larger.
    size = (12).to_bytes(8, "little")
    assert raw.count(size) >= 1
    for at in range(len(raw)):
        if raw[at : at + 8] == size:
            wire = raw[:at] + (14).to_bytes(8, "little") + raw[at + 8 :]
            assert outcome(wire) in ("read", "bad_request")
    assert decode_arrow(raw, LIMITS).body.values(2) == [b"a", b"b"]


def outcome(raw: bytes) -> str:
    """What became of a body."""
    try:
        assert decode_arrow(raw, LIMITS).n <= 2
    except Problem as problem:
        return problem.code
    return "read"


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    problem = refused(b"")
    assert problem.code == "unsupported"
    assert "delaylog[arrow]" in problem.detail

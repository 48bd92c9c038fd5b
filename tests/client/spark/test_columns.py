"""A task's batches become the wire's, and rows that cannot be sent are found."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delaylog.columns import HEADERS as WIRE_HEADERS
from pyspark_delaylog.columns import TIME as WIRE_TIME
from pyspark_delaylog.columns import Columns, by_merge, wrong_headers
from pyspark_delaylog.errors import RowError
from tests.client.spark.batches import HEADERS, TIME, batch_of
from tests.client.spark.conftest import OptionsOf

BAD_NAME = "is not a valid name; use 1 to 200 of A-Z a-z 0-9 . _ -, but not . or .."


def test_types_become_the_wire_s(options_of: OptionsOf) -> None:
    batch = batch_of(
        ["a"],
        key=pa.array(["k"]),
        topic=pa.array(["elsewhere"]),
        priority=pa.array([3], pa.int16()),
        headers=pa.array([[{"key": "h", "value": b"v"}]], HEADERS),
        tags=pa.array([["x"]], pa.list_(pa.large_string())),
        ttl_ms=pa.array([5], pa.int32()),
        max_retry=pa.array([2], pa.int8()),
        merge=pa.array(["keep"]),
        backoff=pa.array([{"factor": 2, "first_ms": 7}]),
    )
    wire = Columns(options_of(), None).wire(batch)
    assert wire.schema == pa.schema(
        [
            ("id", pa.string()),
            ("value", pa.binary()),
            ("deliver_at", WIRE_TIME),
            ("key", pa.string()),
            ("priority", pa.int32()),
            ("headers", WIRE_HEADERS),
            ("tags", pa.list_(pa.string())),
            ("ttl_ms", pa.int64()),
            ("max_retry", pa.int32()),
            ("merge", pa.string()),
            ("backoff", pa.struct([("factor", pa.float64()), ("first_ms", pa.int64())])),
        ]
    ), "the option topic wins, and the column is left out"
    assert wire.column("value")[0].as_py() == b"body of a"
    assert wire.column("deliver_at")[0].value == 1_770_000_000_000_000, "the instant stays"


def test_a_named_column_is_the_time(options_of: OptionsOf) -> None:
    batch = pa.record_batch({"value": ["x"], "due": pa.array([5], pa.int64()).cast(TIME)})
    wire = Columns(options_of(delayColumn="due"), None).wire(batch)
    assert wire.schema.names == ["value", "deliver_at"]


def test_a_delay_counts_from_the_base_where_a_row_says_no_time(options_of: OptionsOf) -> None:
    columns = Columns(options_of(delayMs=500), 1_000)
    due = datetime.fromtimestamp(1.5, UTC)
    assert columns.wire(pa.record_batch({"value": ["x"]})).column("deliver_at").to_pylist() == [due]
    times = pa.array([7_000_000, None], pa.int64()).cast(TIME)
    wire = columns.wire(batch_of(["a", "b"], deliver_at=times))
    assert wire.column("deliver_at").to_pylist() == [datetime.fromtimestamp(7, UTC), due]


@pytest.mark.parametrize("column", ["value", "deliver_at"])
def test_a_null_is_refused_with_its_id(options_of: OptionsOf, column: str) -> None:
    batch = batch_of(["a", "b"])
    kind = batch.schema.field(column).type
    nulled = pa.array([batch.column(column)[0].as_py(), None], kind)
    wire = Columns(options_of(), None).wire(batch_of(["a", "b"], **{column: nulled}))
    with pytest.raises(RowError, match=f"column '{column}' of the row with id 'b': the .* is null"):
        Columns(options_of(), None).refuse(wire)


def test_a_row_without_an_id_is_named_by_its_key_and_body(options_of: OptionsOf) -> None:
    columns = Columns(options_of(delayColumn="due"), None)
    keyed = pa.record_batch({"value": [b"x" * 50], "key": ["k"]})
    found = str(columns.row_error(keyed, "deliver_at_ms", "it is wrong", "t"))
    assert f"column 'due' of the row with key 'k' and body '{'x' * 40}'... for topic 't'" in found
    bare = pa.record_batch({"id": [""], "value": pa.array([None], pa.binary())})
    assert "the row with no body: wrong" in str(columns.row_error(bare, None, "wrong"))


def test_headers_that_would_be_lost_are_refused_by_name(options_of: OptionsOf) -> None:
    """Also in a slice of a batch, and whatever the rows around them have."""
    rows: list[Any] = [
        [{"key": "unused", "value": None}],
        None,
        [{"key": "a", "value": b"1"}, {"key": "b", "value": b""}],
        [{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}, {"key": "a", "value": b"1"}],
        [],
        [{"key": "c", "value": None}],
        [{"key": "a", "value": b"1"}, {"key": "d", "value": b"\xff"}],
        [{"key": None, "value": b"1"}],
        [None],
    ]
    ids = [str(row) for row in range(len(rows))]
    batch = batch_of(ids, headers=pa.array(rows, HEADERS)).slice(1)
    columns = Columns(options_of(), None)
    kept, rejected = columns.sift(columns.wire(batch))
    assert kept.column("id").to_pylist() == ["1", "2", "4"]
    said = {each.reason.partition(";")[0]: each.rows.column("id").to_pylist() for each in rejected}
    assert said == {
        "header 'a' occurs twice": ["3"],
        "the value of header 'c' is null": ["5"],
        "the value of header 'd' is not UTF-8": ["6"],
        "the name of a header is null": ["7", "8"],
    }
    with pytest.raises(RowError, match="column 'headers' of the row with id '3': header 'a' occu"):
        columns.refuse(columns.wire(batch))


@given(
    rows=st.lists(
        st.none() | st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([b"", b"x"])))
    ),
    cut=st.integers(0, 4),
)
def test_repeated_headers_are_found_as_a_loop_finds_them(
    rows: list[list[tuple[str, bytes]] | None], cut: int
) -> None:
    pairs = [None if r is None else [{"key": k, "value": v} for k, v in r] for r in rows]
    found = wrong_headers(pa.array(pairs, HEADERS).slice(cut)).to_pylist()
    assert found == [len({k for k, _ in r or ()}) < len(r or ()) for r in rows[cut:]]


def test_rows_are_cut_by_merge_mode(options_of: OptionsOf) -> None:
    modes = pa.array(["keep", None, "reject", "keep"], pa.string())
    cut = by_merge(batch_of(["1", "2", "3", "4"], merge=modes))
    assert {mode: rows.column("id").to_pylist() for mode, rows in cut} == {
        "keep": ["1", "4"],
        None: ["2"],
        "reject": ["3"],
    }
    assert ["merge" in rows.schema.names for _, rows in cut] == [True, False, True]
    assert [mode for mode, _ in by_merge(batch_of(["1"]))] == [None]


def test_what_cannot_be_sent_is_sifted_out_by_reason(options_of: OptionsOf) -> None:
    ids = [
        "ok",
        "~mine",
        "x" * 256,
        "a\nb",
        None,
        "",
        "no body",
        "key too long",
        "no topic",
        "bad",
        "dots",
    ]
    bodies = [None if each == "no body" else "b" for each in ids]
    keys = ["k" * 256 if each == "key too long" else None for each in ids]
    topics = [{"no topic": None, "bad": "a/b", "dots": ".."}.get(each or "", "t") for each in ids]
    batch = batch_of(
        ids, value=pa.array(bodies), key=pa.array(keys, pa.string()), topic=pa.array(topics)
    )
    columns = Columns(options_of(topic=""), None)
    kept, rejected = columns.sift(columns.wire(batch))
    assert kept.column("id").to_pylist() == ["ok", None, ""], "no id means the broker makes one"
    assert {each.reason: each.rows.column("id").to_pylist() for each in rejected} == {
        "the body is null": ["no body"],
        "the topic is null": ["no topic"],
        f"'a/b' {BAD_NAME}": ["bad"],
        f"'..' {BAD_NAME}": ["dots"],
        "id is longer than 255 bytes": ["x" * 256],
        "an id must not begin with ~": ["~mine"],
        "the id has control characters": ["a\nb"],
        "key is longer than 255 bytes": ["key too long"],
    }


def test_a_bad_topic_is_refused_with_its_row(options_of: OptionsOf) -> None:
    bad = batch_of(["1", "2"], topic=pa.array(["b", "a/b"]))
    columns = Columns(options_of(topic=""), None)
    with pytest.raises(RowError, match="column 'topic' of the row with id '2': 'a/b' is not a"):
        columns.refuse(columns.wire(bad))

"""A task's batches become the wire's, and rows that cannot be sent are found."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from pyspark_delaylog.columns import HEADERS as WIRE_HEADERS
from pyspark_delaylog.columns import TIME as WIRE_TIME
from pyspark_delaylog.columns import Columns, by_topic
from pyspark_delaylog.errors import RowError
from tests.client.spark.batches import HEADERS, TIME, batch_of
from tests.client.spark.conftest import OptionsOf


def test_types_become_the_wire_s(options_of: OptionsOf) -> None:
    batch = batch_of(
        ["a"],
        key=pa.array(["k"]),
        topic=pa.array(["elsewhere"]),
        priority=pa.array([3], pa.int16()),
        headers=pa.array([[{"key": "h", "value": b"v"}]], HEADERS),
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
    with pytest.raises(RowError, match=f"column '{column}' is null in a row, its id is 'b'"):
        Columns(options_of(), None).refuse_nulls(wire)


def test_what_cannot_be_sent_is_sifted_out_by_reason(options_of: OptionsOf) -> None:
    ids = ["ok", "~mine", "x" * 256, "a\nb", None, "", "no body", "key too long", "no topic", "bad"]
    bodies = [None if each == "no body" else "b" for each in ids]
    keys = ["k" * 256 if each == "key too long" else None for each in ids]
    topics = [{"no topic": None, "bad": "a/b"}.get(each or "", "t") for each in ids]
    batch = batch_of(
        ids, value=pa.array(bodies), key=pa.array(keys, pa.string()), topic=pa.array(topics)
    )
    columns = Columns(options_of(topic=""), None)
    kept, rejected = columns.sift(columns.wire(batch))
    assert kept.column("id").to_pylist() == ["ok", None, ""], "no id means the broker makes one"
    assert {each.reason: each.rows.column("id").to_pylist() for each in rejected} == {
        "value is null": ["no body"],
        "topic is null": ["no topic"],
        "topic is not a valid name": ["bad"],
        "id is longer than 255 bytes": ["x" * 256],
        "id begins with ~": ["~mine"],
        "id has control characters": ["a\nb"],
        "key is longer than 255 bytes": ["key too long"],
    }


def test_rows_are_cut_by_topic_in_order(options_of: OptionsOf) -> None:
    batch = batch_of(["1", "2", "3"], topic=pa.array(["b", "a", "b"]))
    wire = Columns(options_of(topic=""), None).wire(batch)
    cut = {topic: rows.column("id").to_pylist() for topic, rows in by_topic(wire, None)}
    assert cut == {"b": ["1", "3"], "a": ["2"]}
    assert [topic for topic, _ in by_topic(wire, "t")] == ["t"]
    bad = batch_of(["1", "2"], topic=pa.array(["b", "a/b"]))
    with pytest.raises(RowError, match="column 'topic': 'a/b' is not a valid name"):
        by_topic(Columns(options_of(topic=""), None).wire(bad), None)
    one = by_topic(wire.slice(0, 1), None)
    assert [(topic, rows.schema.names) for topic, rows in one] == [
        ("b", ["id", "value", "deliver_at"])
    ]

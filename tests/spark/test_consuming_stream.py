"""The consuming stream in a real Spark: batches of claims, acknowledged when they are done."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.client.spark.fake_broker import FakeBroker
from tests.spark.frames import ids_of

ROWS = 3_000
Each = Callable[[DataFrame, int], None]


def fill(broker: FakeBroker, rows: int) -> None:
    broker.ready["t"] = [
        {
            "value": f"body of {each}".encode(),
            "deliver_at": datetime(2026, 1, 1, tzinfo=UTC),
            "id": each,
            "topic": "t",
            "priority": 2,
            "attempts": 1,
            "headers": [{"key": "h", "value": b"v"}],
            "ref": 7,
        }
        for each in ids_of(0, rows)
    ]


def consume(
    spark: SparkSession, broker: FakeBroker, folder: Path, each: Each, **given: Any
) -> None:
    """What is ready, then the query ends."""
    options = {"endpoint": broker.url, "topic": "t", "maxMessagesPerTrigger": 1_000, **given}
    query = (
        spark.readStream.format("delaylog")
        .options(**options)
        .load()
        .writeStream.foreachBatch(each)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)


def test_what_is_ready_is_read_in_batches_and_acknowledged(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path
) -> None:
    fill(broker, ROWS)
    seen: list[list[Any]] = []
    consume(spark, broker, tmp_path, lambda frame, number: seen.append(frame.collect()))
    assert [len(rows) for rows in seen] == [1_000, 1_000, 1_000, 0]
    assert sorted(row.id for rows in seen for row in rows) == ids_of(0, ROWS)
    row = seen[0][0]
    assert (row.value.decode(), row.topic, row.priority) == (f"body of {row.id}", "t", 2)
    assert (row.attempts, row.ref, row.key) == (1, 7, None)
    assert [(pair.key, bytes(pair.value)) for pair in row.headers] == [("h", b"v")]
    assert row.deliver_at.timestamp() == datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert len(broker.acked) == ROWS, "the last batch too"
    consume(spark, broker, tmp_path, lambda frame, number: seen.append(frame.collect()))
    assert len(broker.acked) == ROWS

"""Guards of what this package knows of Spark's inside: a Spark without it must not go unnoticed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession


def test_tasks_of_a_stream_are_told_their_query_and_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The streaming sink names its transactions by them."""
    found: list[Any] = []

    def tell(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark_delaylog.tasks import this_batch

        for batch in batches:
            told = this_batch()
            count = batch.num_rows
            yield pa.RecordBatch.from_arrays(
                [pa.array([told.query_id] * count), pa.array([told.number] * count, pa.int64())],
                names=["query", "batch"],
            )

    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 2)
        .load()
        .mapInArrow(tell, "query string, batch long")
        .writeStream.foreachBatch(lambda frame, number: found.append((number, frame.collect())))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for _ in range(600):
            if len(found) >= 2 or not query.isActive:
                break
            query.awaitTermination(1)
    finally:
        query.stop()
    assert len(found) >= 2, query.exception()
    for number, rows in found:
        assert {(row.query, row.batch) for row in rows} == {(str(query.id), number)}
    assert uuid.UUID(str(query.id))


def test_the_format_is_found_by_its_module_s_name(spark: SparkSession) -> None:
    """And what cannot be done with it says so."""
    with pytest.raises(Exception, match=r"use spark\.readStream"):
        spark.read.format("delaylog").load().collect()

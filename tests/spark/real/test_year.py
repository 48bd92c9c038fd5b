"""A million rows with every kind of column, due over 366 days, by a driver of one GiB.

Purpose: what a load of a year puts on disk is the input, row for row, before and after a start
from that disk. Method: the sums of a hash over all columns of a row, of the input and of the
broker's folder, whose rows are in the far tier for the most part.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.spark.frames import stored
from tests.spark.real.real_broker import RealBroker
from tests.spark.test_batch_sink import sink

ROWS = 1_000_000
TASKS = 8
YEAR_MS = 366 * 86_400_000
STEP_MS = 15_485_863
"""A prime: neighbours in a file are hours apart, and no two of the million share a due time."""
FILES_MAX = 200


@pytest.mark.drill
def test_a_million_rows_of_a_year_are_there_once_and_as_they_were(
    spark: SparkSession, real: RealBroker, tmp_path: Path
) -> None:
    source = str(tmp_path / "input")
    year(spark, int(time.time() * 1000) + 86_400_000).write.parquet(source)
    frame = spark.read.parquet(source)
    begun = time.monotonic()
    sink(frame, real, txnAppId="year", batchSize=10_000).save()
    saved_s = time.monotonic() - begun
    assert real.settled("year")["rows"] == ROWS
    published_s = time.monotonic() - begun
    sink(frame, real, txnAppId="year", batchSize=10_000).save()
    assert real.counts("t") == {"waiting": ROWS}
    real.kill()
    real.start()
    assert real.counts("t") == {"waiting": ROWS}
    real.stop()
    files = sum(path.is_file() for path in real.data_dir.rglob("*"))
    size = sum(path.stat().st_size for path in real.data_dir.rglob("*") if path.is_file())
    print(f"saved {saved_s:.1f} s, published {published_s:.1f} s, {files} files, {size:,} bytes")
    assert digest(stored(spark, real.data_dir)) == digest(frame)
    assert files < FILES_MAX


def year(spark: SparkSession, first_ms: int) -> DataFrame:
    """Keys, priorities and headers of some rows only."""
    number = f.col("id")
    kind = f.struct(
        f.lit("kind").alias("key"), f.encode(number.cast("string"), "utf-8").alias("value")
    )
    return spark.range(ROWS, numPartitions=TASKS).select(
        f.format_string("m%08d", number).alias("id"),
        f.concat(f.lit("body of "), number.cast("string")).alias("value"),
        f.timestamp_millis(first_ms + number * STEP_MS % YEAR_MS).alias("deliver_at"),
        f.when(number % 3 == 0, f.concat(f.lit("k"), number % 1_000)).alias("key"),
        (number % 5).cast("int").alias("priority"),
        f.when(number % 4 == 0, f.array(kind)).alias("headers"),
    )


def digest(frame: DataFrame) -> list[Any]:
    """Rows, different ids, and the sum of all rows' hashes. No headers are as an empty list."""
    headers = f.coalesce("headers", f.array().cast(frame.schema["headers"].dataType))
    texts = f.transform(headers, lambda pair: f.concat_ws("=", pair.key, pair.value.cast("string")))
    plain = frame.select(
        "id", f.col("value").cast("string"), "deliver_at", "key", "priority", texts.alias("headers")
    )
    row = f.xxhash64(*plain.columns).cast("decimal(38,0)")
    return list(plain.agg(f.count("*"), f.count_distinct("id"), f.sum(row)).first() or ())

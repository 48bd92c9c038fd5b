"""A program for `spark-submit` in a Python without delaylog; it prints a line of JSON.

It imports nothing of the tests, since an executor has only what was sent to it.

submitted.py ENDPOINT ROWS
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import pyspark_delaylog

NAME = "load-1"


def messages(spark: SparkSession, rows: int) -> DataFrame:
    number = f.col("id")
    return spark.range(0, rows, numPartitions=4).select(
        f.format_string("m%08d", number).alias("id"),
        f.lit("body").alias("value"),
        f.timestamp_millis(f.lit(1_900_000_000_000) + number * 1_000).alias("deliver_at"),
    )


def where(batches: Iterator[Any]) -> Iterator[Any]:
    """The place of the package in a task, and whether there is a delaylog beside it."""
    import os

    import pyarrow as pa

    import pyspark_delaylog

    for _ in batches:
        there = find_spec("delaylog") is not None
        text = f"{os.getcwd()} {pyspark_delaylog.__file__} {there}"
        yield pa.RecordBatch.from_arrays([pa.array([text])], names=["place"])


def caught(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return str(error)
    return ""


def main() -> None:
    endpoint, rows = sys.argv[1], int(sys.argv[2])
    spark = SparkSession.builder.getOrCreate()
    frame = messages(spark, rows)
    options = {"endpoint": endpoint, "batchSize": 500}
    said: dict[str, Any] = {"version": pyspark.__version__}

    def load(topic: str) -> None:
        written = frame.write.format("delaylog").mode("append")
        written.options(**options, topic=topic, txnAppId=NAME).save()

    def sink() -> None:
        rate = spark.readStream.format("rate").load()
        columns = rate.selectExpr("'x' AS value", "timestamp AS deliver_at")
        sent = columns.writeStream.format("delaylog").options(**options, topic="stream")
        sent.option("checkpointLocation", sys.argv[3]).trigger(once=True).start().awaitTermination()

    def source() -> None:
        read = spark.readStream.format("delaylog").options(**options, topic="t").load()
        read.writeStream.format("noop").option("checkpointLocation", sys.argv[3]).start().stop()

    try:
        said["register"] = caught(lambda: pyspark_delaylog.register(spark))
        said["load"] = caught(lambda: load("t"))
        pyspark_delaylog.write_frame(frame, **options, topic="mapped", txnAppId="mapped-1")
        said["places"] = [row.place for row in frame.mapInArrow(where, "place string").collect()]
        said["sink"] = caught(sink)
        said["source"] = caught(source)
        folder = spark.read.format("delaylog-segments")
        said["folder"] = caught(lambda: folder.load("/nowhere").count())
    finally:
        spark.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main()

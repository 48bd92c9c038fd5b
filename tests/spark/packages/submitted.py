"""A program for `spark-submit` in a Python without delaylog; it prints a line of JSON.

It imports nothing of the tests, since an executor has only what was sent to it.

submitted.py ENDPOINT ROWS FOLDER [read]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import pyspark_delaylog

SINK_SINCE = (4, 1)
READ_TRIES = 10
"""Spark gives the Python of a stream 10 s to start, which it may exceed on a busy machine."""


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
    from importlib.util import find_spec

    import pyarrow as pa

    import pyspark_delaylog

    for _ in batches:
        place = os.path.relpath(pyspark_delaylog.__file__)
        text = f"{os.getpid()} {place} {find_spec('delaylog') is not None}"
        yield pa.RecordBatch.from_arrays([pa.array([text])], names=["place"])


def caught(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return str(error)
    return ""


def main() -> None:
    endpoint, rows, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    spark = SparkSession.builder.getOrCreate()
    frame = messages(spark, rows)
    options: dict[str, Any] = {"endpoint": endpoint, "batchSize": 500}

    def load() -> None:
        written = frame.write.format("delaylog").mode("append").options(**options)
        written.options(topic="batch", txnAppId="batch").save()

    def stream(how: Callable[[Any], Any]) -> None:
        read = spark.readStream.schema(frame.schema).parquet(f"{folder}/rows")
        writing = how(read.writeStream).option("checkpointLocation", f"{folder}/checkpoint")
        writing.trigger(availableNow=True).start().awaitTermination()

    def write_batch(batch: DataFrame, number: int) -> None:
        name = f"stream.{number}"
        pyspark_delaylog.write_frame(batch, **options, topic="stream", txnAppId=name)

    def read() -> list[str]:
        found: list[str] = []
        stream = spark.readStream.format("delaylog").options(**options, topic="ready").load()
        writing = stream.writeStream.foreachBatch(
            lambda rows, number: found.extend(row.id for row in rows.collect())
        ).option("checkpointLocation", f"{folder}/consumer")
        writing.trigger(availableNow=True).start().awaitTermination()
        return found

    said: dict[str, Any] = {"version": pyspark.__version__}
    try:
        said["register"] = caught(lambda: pyspark_delaylog.register(spark))
        said["load"] = caught(load)
        pyspark_delaylog.write_frame(frame, **options, topic="mapped", txnAppId="mapped")
        said["places"] = [row.place for row in frame.mapInArrow(where, "place string").collect()]
        frame.coalesce(1).write.parquet(f"{folder}/rows")
        said["sink"] = caught(
            lambda: stream(lambda to: to.format("delaylog").options(**options, topic="stream"))
        )
        if tuple(map(int, pyspark.__version__.split(".")[:2])) < SINK_SINCE:
            stream(lambda to: to.foreachBatch(write_batch))
        said["ids"] = []
        for _ in range(READ_TRIES if sys.argv[4:] == ["read"] else 0):
            said["read"] = caught(lambda: said["ids"].extend(read()))
            if "failed to connect back" not in said["read"]:
                break
        of_folders = spark.read.format("delaylog-segments")
        said["folder"] = caught(lambda: of_folders.load("/nowhere").count())
    finally:
        spark.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main()

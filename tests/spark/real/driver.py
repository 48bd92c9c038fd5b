"""A driver in a process of its own, to be killed: a slow batch load and a stream side by side.

python -m tests.spark.real.driver ENDPOINT SOURCE FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.frames import messages
from tests.spark.session import prepare_environment, start_session

BATCH_LOAD = "batch-load"
BATCH_ROWS = 10_000
STREAM_APP = "stream-app"


def write_batch(spark: SparkSession, endpoint: str) -> None:
    """A minute and more, chunk by chunk: nobody lets it end."""
    frame = messages(spark, 0, BATCH_ROWS, 2).write.format("delaylog").mode("append")
    options = {"endpoint": endpoint, "topic": "batch", "txnAppId": BATCH_LOAD, "batchSize": 100}
    frame.options(**options, maxRowsPerSecond=60).save()


def start_stream(spark: SparkSession, endpoint: str, source: str, folder: Path) -> StreamingQuery:
    """All files that are there, a micro-batch each."""
    frame = spark.readStream.schema("id string, value string, deliver_at timestamp")
    return (
        frame.option("maxFilesPerTrigger", 1)
        .parquet(source)
        .writeStream.format("delaylog")
        .options(endpoint=endpoint, topic="stream", txnAppId=STREAM_APP)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    endpoint, source, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    prepare_environment()
    own = folder / "driver"
    own.mkdir()
    # A slot for each of the load's two tasks, and some for the stream's.
    spark = start_session(own, "local[4,4]")
    # Both from this thread: Spark finds formats of Python only where a session is active.
    start_stream(spark, endpoint, source, folder)
    write_batch(spark, endpoint)


if __name__ == "__main__":
    main()

"""DataFrames of messages whose ids are numbers, and the messages in the folder of a broker."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

FIRST_DUE_MS = 1_900_000_000_000


def messages(spark: SparkSession, first: int, end: int, partitions: int = 4) -> DataFrame:
    """One message a number, each due a second after the one before."""
    number = f.col("id")
    return spark.range(first, end, numPartitions=partitions).select(
        f.format_string("m%08d", number).alias("id"),
        f.concat(f.lit("body of "), number.cast("string")).alias("value"),
        f.timestamp_millis(f.lit(FIRST_DUE_MS) + number * 1_000).alias("deliver_at"),
    )


def ids_of(first: int, end: int) -> list[str]:
    return [f"m{number:08d}" for number in range(first, end)]


def parquet(spark: SparkSession, folder: Path, rows: int, files: int) -> str:
    """A folder with the messages 0 to `rows` - 1 in `files` parquet files."""
    target = str(folder / "input")
    messages(spark, 0, rows, files).write.parquet(target)
    assert len(list(Path(target).glob("*.parquet"))) == files
    return target


def stored(spark: SparkSession, data_dir: Path) -> DataFrame:
    """The waiting and ready messages in the folder of a stopped broker, with bodies."""
    kind = spark.read.format("delaylog-segments").options(includeBody=True)
    return kind.load(str(data_dir)).where("state in ('waiting', 'ready')")

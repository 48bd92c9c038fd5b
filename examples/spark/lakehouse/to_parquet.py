"""An archive as parquet by day and topic, each hour once; and the messages that still wait."""

import json
from pathlib import Path

from archived_hours import hours_of
from pyspark.sql import functions as f


def load_parquet(spark, archive: Path, lake: Path) -> None:
    mark = lake / "_hours.json"
    loaded = json.loads(mark.read_text()) if mark.exists() else {}
    versions = {hour: copy["archived_at_ms"] for hour, copy in hours_of(archive).items()}
    new = {hour for hour in versions if versions[hour] != loaded.get(hour)}
    if not new:
        return
    # An older version of the hour, or what a killed run has left.
    for file in lake.glob("day=*/topic=*/utc_hour=*/*"):
        if file.parent.name.removeprefix("utc_hour=") in new:
            file.unlink()
    (
        spark.read.parquet(str(archive))
        .where(f.col("utc_hour").isin(*new))
        .withColumn("day", f.substring("utc_hour", 1, 10))
        .write.mode("append")
        .partitionBy("day", "topic", "utc_hour")
        .parquet(str(lake))
    )
    mark.with_suffix(".tmp").write_text(json.dumps(versions))
    mark.with_suffix(".tmp").replace(mark)


def read_parquet(spark, lake: Path):
    # By default Spark guesses types from the names of folders: if all topics are numbers, 007 is 7.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    return spark.read.parquet(str(lake))


def save_waiting(spark, folder: str, target: Path, day: str) -> None:
    """A snapshot of living messages, which each run of a day replaces; `read_parquet` reads it."""
    (
        spark.read.format("delaylog-segments")
        .option("state", "waiting,ready,leased")
        .load(folder)
        .write.mode("overwrite")
        .partitionBy("topic")
        .parquet(str(target / f"day={day}"))
    )

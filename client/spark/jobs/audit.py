"""Counts the messages in a data folder of a broker, live or offline, or in a backup.

Writes parquet and one HTML file to the output folder: counts by topic, group, hour and state,
quantiles of lateness (time of the ack minus due time), a histogram of attempts, and the dead
letters. One scan of the indexes gives everything except the dead letters; quantiles are exact to 7
bits.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, Final

from pyspark_delaylog.errors import JobError
from pyspark_delaylog.jobs.progress import progress, rows_read
from pyspark_delaylog.segments.folder import read_folder

HELP: Final = "counts, lateness, retries and dead letters of a data folder or backup"
QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)
_GROUP: Final = ("namespace", "topic", "group")
_COLUMNS: Final = (*_GROUP, "hour", "state", "attempts", "lateness_ms")
_KEPT_BITS: Final = 7
"""Precision of a lateness: exact up to 127 ms, then within 1.6 %."""
_ATTEMPTS_MAX: Final = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for input and output."""
    add_folder_arguments(parser)
    parser.add_argument("--topic", metavar="NAME,…", help="only these topics")
    parser.add_argument("--group", metavar="NAME,…", help="only these groups")
    parser.add_argument("--bodies", action="store_true", help="include bodies of dead letters")
    parser.add_argument(
        "--on-corrupt", choices=("fail", "skip"), default="fail", help="skip: count damaged rows"
    )


def add_folder_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the folder, its hours, and the output."""
    parser.add_argument("folder", help="a broker's data folder, or a backup")
    parser.add_argument("output", help="folder for the results")
    parser.add_argument("--start-hour", metavar="HOUR", help="first hour, as 2026-01-31T07Z")
    parser.add_argument("--end-hour", metavar="HOUR", help="end, exclusive")
    parser.add_argument("--partitions", type=int, metavar="N", help="tasks (default: the cores)")


def segment_options(args: argparse.Namespace, **more: str) -> dict[str, str]:
    """The options for the format `delaylog-segments`."""
    said = {
        "path": str(Path(args.folder).resolve()),
        "startHour": args.start_hour,
        "endHour": args.end_hour,
        "numPartitions": args.partitions,
        **more,
    }
    return {name: str(value) for name, value in said.items() if value is not None}


def output_of(args: argparse.Namespace) -> Path:
    """The folder for the results. JobError if it is inside the data folder, which is a broker's."""
    output, folder = Path(args.output).resolve(), Path(args.folder).resolve()
    if output.is_relative_to(folder):
        raise JobError(f"{output} is inside the data folder {folder}: give a folder outside of it")
    return output


def run(spark: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Run the audit. Returns the summary, which is also written to summary.json."""
    from pyspark_delaylog.jobs.report import write_report

    output = output_of(args)
    folder = read_folder(str(Path(args.folder).resolve()))
    chosen = {"topic": args.topic, "group": args.group, "onCorrupt": args.on_corrupt}
    options = segment_options(args, **{k: v for k, v in chosen.items() if v is not None})
    begun = time.monotonic()
    with progress(spark, "audit", rows_read(spark)):
        cells = scan(spark, options).cache()
        try:
            summary = _summary(cells)
            summary["seconds"] = round(time.monotonic() - begun, 2)
            tables = {
                "counts": counts_of(cells),
                "lateness": lateness_of(cells),
                "retries": retries_of(cells),
            }
            for name, table in tables.items():
                _write(table, output / name)
            _write(dead_letters(spark, options, bodies=args.bodies), output / "dead")
            found = {name: _collect(spark, output / name) for name in tables}
        finally:
            cells.unpersist()
    summary = {
        "job": "audit",
        "folder": options["path"],
        "as_of_ms": folder.as_of_ms,
        "position": folder.position,
        **summary,
        "report": str(output / "report.html"),
    }
    write_report(output / "report.html", summary, found)
    (output / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return summary


def scan(spark: Any, options: dict[str, str]) -> Any:
    """Count messages by all dimensions of the report, in one scan of the indexes."""
    from pyspark.sql import functions as sql

    frame = (
        spark.read.format("delaylog-segments").options(**options, columns=",".join(_COLUMNS)).load()
    )
    known = sql.col("lateness_ms")
    late = sql.when(known.isNotNull(), sql.greatest(known, sql.lit(0)))
    # Keep the highest bits: 1,234,567 is counted as 1,228,800.
    shift = sql.greatest(sql.floor(sql.log2(late + 1)) - (_KEPT_BITS - 1), sql.lit(0)).cast("int")
    step = sql.expr("shiftleft(1L, shift)")
    return (
        frame.withColumn("shift", shift)
        .withColumn("late_ms", late - late % step)
        .groupBy(*_GROUP, "hour", "state", "attempts", "late_ms")
        .agg(sql.count(sql.lit(1)).alias("messages"), sql.max("lateness_ms").alias("late_max_ms"))
    )


def counts_of(cells: Any) -> Any:
    """Messages by topic, group, hour and state."""
    from pyspark.sql import functions as sql

    keys = (*_GROUP, "hour", "state")
    return cells.groupBy(*keys).agg(sql.sum("messages").alias("messages")).orderBy(*keys)


def lateness_of(cells: Any) -> Any:
    """Quantiles by topic, group and hour, and per topic and group over all hours (null)."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    keys = (*_GROUP, "hour")
    acked = cells.where("late_ms is not null")
    per_hour = acked.select(*keys, "late_ms", "messages", "late_max_ms")
    overall = per_hour.withColumn("hour", sql.lit(None).cast("timestamp"))
    both = per_hour.unionByName(overall).groupBy(*keys, "late_ms")
    both = both.agg(
        sql.sum("messages").alias("messages"), sql.max("late_max_ms").alias("late_max_ms")
    )
    whole = Window.partitionBy(*keys)
    up_to = whole.orderBy("late_ms").rowsBetween(Window.unboundedPreceding, 0)
    ranked = both.withColumn("reached", sql.sum("messages").over(up_to)).withColumn(
        "acked", sql.sum("messages").over(whole)
    )
    found = [
        sql.min(sql.when(sql.col("reached") >= sql.col("acked") * share, sql.col("late_ms"))).alias(
            f"p{share * 100:g}_ms".replace(".", "_")
        )
        for share in QUANTILES
    ]
    return (
        ranked.groupBy(*keys)
        .agg(sql.max("acked").alias("acked"), *found, sql.max("late_max_ms").alias("max_ms"))
        .orderBy(*keys)
    )


def retries_of(cells: Any) -> Any:
    """Messages by topic, group and number of deliveries (50 means 50 or more)."""
    from pyspark.sql import functions as sql

    keys = (*_GROUP, "attempts")
    capped = cells.withColumn("attempts", sql.least("attempts", sql.lit(_ATTEMPTS_MAX)))
    known = capped.where("attempts is not null")
    return known.groupBy(*keys).agg(sql.sum("messages").alias("messages")).orderBy(*keys)


def dead_letters(spark: Any, options: dict[str, str], *, bodies: bool) -> Any:
    """All columns of the dead letters; only their records are read."""
    text = "includeBody" if bodies else "includeText"
    asked = {**options, "state": "dead", text: "true"}
    return spark.read.format("delaylog-segments").options(**asked).load()


def _summary(cells: Any) -> dict[str, Any]:
    from pyspark.sql import functions as sql

    found = cells.groupBy("state").agg(sql.sum("messages").alias("n")).collect()
    states = {row["state"]: int(row["n"]) for row in found}
    return {"rows": sum(states.values()), "states": states}


def _collect(spark: Any, path: Path) -> list[Any]:
    """Collect rows with hours as numbers: timestamps would be in the local time zone."""
    from pyspark.sql import functions as sql

    frame = spark.read.parquet(str(path))
    if "hour" in frame.columns:
        hour = sql.floor(sql.unix_seconds("hour") / 3600).cast("bigint")
        frame = frame.withColumn("hour", hour)
    found: list[Any] = frame.collect()
    return found


def _write(frame: Any, path: Path) -> None:
    frame.write.mode("overwrite").parquet(str(path))

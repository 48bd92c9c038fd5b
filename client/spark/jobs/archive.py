"""Copy hours in which nothing lives any more to parquet, each once, and verify the copy.

The output holds a folder `utc_hour=…` for each hour, with one row per message and group and all
its texts, and `_manifest.json`, which names every hour that is whole: its rows, a checksum of them,
and its files. Run again, it goes on with what is not there yet. A broker deletes ended hours by
itself, by its topics' `ended_keep_ms`, unless it was started with `--archive-hold on`: then it
keeps them until this job, with `--endpoint URL --release`, has them in the manifest and says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, Final

from delaylog.storage.layout import HOUR_MS, hour_name
from pyspark_delaylog.errors import JobError
from pyspark_delaylog.jobs.audit import add_folder_arguments, segment_options
from pyspark_delaylog.jobs.holding import held_retention
from pyspark_delaylog.jobs.releasing import (
    Bounds,
    check_not_anew,
    open_broker,
    releasable,
    stands,
)
from pyspark_delaylog.segments.folder import Folder, read_folder
from pyspark_delaylog.segments.options import parse_options

HELP: Final = "ended hours to parquet, verified, each once"
MANIFEST: Final = "_manifest.json"
"""Spark passes over files that begin so, and reads the folder as one table."""
FORMAT: Final = 1
HOUR_COLUMN: Final = "utc_hour"
_STAGING: Final = "_staging"
_HOURS_AT_ONCE: Final = 24
"""Hours that are written, verified and put into the manifest together."""

Sums = dict[str, tuple[int, int]]
"""(rows, checksum) by the name of an hour."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is archived, and where to."""
    add_folder_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="say which hours would be archived")
    parser.add_argument("--endpoint", metavar="URL", help="the broker, for --release")
    parser.add_argument(
        "--release",
        action="store_true",
        help="archive what can change no more, and have the broker let it go",
    )


def run(spark: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Archive what is not there yet; returns what was done."""
    if not args.release:
        return _run(spark, args)
    if not args.endpoint:
        raise JobError("--release needs --endpoint, the address of the broker that holds the hours")
    with open_broker(args.endpoint) as broker:
        bounds = broker.bounds()
        done = _run(spark, args, bounds)
        if args.dry_run:
            return done
        # The hours that were archived, and those of a run that ended before it got here.
        output, path = Path(args.output).resolve(), segment_options(args)["path"]
        manifest, folder = read_manifest(output), read_folder(path)
        found = releasable(folder, manifest, _there(folder), bounds)
        name = None
        if found is not None:
            through, rows = found
            broker.release(through, folder.position, rows)
            name = hour_name(through)
            manifest["released_through_ms"] = through * HOUR_MS
            write_manifest(output, manifest)
        return {**done, "released_through": name}


def _run(spark: Any, args: argparse.Namespace, bounds: Bounds | None = None) -> dict[str, Any]:
    output = Path(args.output).resolve()
    manifest = read_manifest(output)
    begun = time.monotonic()
    rows = 0
    options = segment_options(args, includeBody="true")
    with held_retention(options["path"]):
        folder = read_folder(options["path"])
        hours = ended_hours(folder, manifest, options, bounds)
        if args.dry_run:
            return {"job": "archive", "would_archive": [hour_name(hour) for hour in hours]}
        before = len(manifest["hours"].keys() - {hour_name(hour) for hour in hours})
        output.mkdir(parents=True, exist_ok=True)
        for at in range(0, len(hours), _HOURS_AT_ONCE):
            found = _archive(spark, options, output, hours[at : at + _HOURS_AT_ONCE])
            rows += sum(each["rows"] for each in found.values())
            for hour in hours[at : at + _HOURS_AT_ONCE]:
                found[hour_name(hour)]["position"] = folder.hours[hour].position
            manifest["hours"].update(found)
            manifest["folder"] = options["path"]
            write_manifest(output, manifest)
    return {
        "job": "archive",
        "hours": len(hours),
        "rows": rows,
        "archived_before": before,
        "seconds": round(time.monotonic() - begun, 2),
    }


def ended_hours(
    folder: Folder,
    manifest: dict[str, Any],
    options: dict[str, str],
    bounds: Bounds | None = None,
) -> list[int]:
    """Hours that take no more rows, in which nothing lives, and which are not in the manifest.

    With the bounds of a broker that holds them: those that can change no more, and that the
    manifest does not have as they are now.
    """
    wanted = parse_options(options).wanted
    hours = [
        hour
        for hour in _there(folder)
        if folder.hours[hour].ended
        and hour < folder.hour_floor
        and wanted.hour_from <= hour < wanted.hour_to
    ]
    if bounds is None:
        return [hour for hour in hours if hour_name(hour) not in manifest["hours"]]
    hours = [hour for hour in hours if hour < bounds.archivable]
    check_not_anew(folder, manifest, hours)
    return [hour for hour in hours if not stands(manifest, hour, folder.hours[hour])]


def _there(folder: Folder) -> list[int]:
    """Hours that were not removed since the checkpoint, in order."""
    hours = f"{folder.path}/hours"
    return [
        hour
        for hour in sorted(folder.hours)
        if os.path.exists(f"{hours}/{hour_name(hour)}/delay.index")
    ]


def _archive(
    spark: Any, options: dict[str, str], output: Path, hours: list[int]
) -> dict[str, dict[str, Any]]:
    """Write hours aside, verify them, put each in its place; returns entries of the manifest."""
    names = {hour_name(hour) for hour in hours}
    asked = {**options, "startHour": hour_name(hours[0]), "endHour": hour_name(hours[-1] + 1)}
    source = with_hour(spark.read.format("delaylog-segments").options(**asked).load())
    source = source.where(source[HOUR_COLUMN].isin(sorted(names)))
    staging = output / _STAGING
    if staging.exists():
        shutil.rmtree(staging)
    source.write.partitionBy(HOUR_COLUMN).parquet(str(staging))
    read = sums_of(source)
    back = spark.read.schema(source.schema).parquet(str(staging))
    written = sums_of(back)
    if read != written:
        wrong = sorted(n for n in names if read.get(n) != written.get(n))
        raise JobError(f"what was written is not what was read, in {', '.join(wrong)}")
    entries = {}
    for name in sorted(names):
        made, place = staging / f"{HOUR_COLUMN}={name}", output / f"{HOUR_COLUMN}={name}"
        if place.exists():
            # Of a run that ended before its manifest was written.
            shutil.rmtree(place)
        rows, checksum = written.get(name, (0, 0))
        files = []
        if rows:
            for file in sorted(made.glob("*.parquet")):
                _sync(file)
                files.append({"name": file.name, "size": file.stat().st_size})
            made.rename(place)
            _sync(place)
        entries[name] = {
            "rows": rows,
            "checksum": f"{checksum:016x}",
            "files": files,
            "archived_at_ms": int(time.time() * 1000),
        }
    _sync(output)
    shutil.rmtree(staging)
    return entries


def with_hour(frame: Any) -> Any:
    """The table with the name of the hour in a column."""
    from pyspark.sql import functions as sql

    # By whole numbers: what formats a timestamp asks for the session's time zone.
    hour = "floor(unix_seconds(hour) / 3600)"
    day = f"date_add(date'1970-01-01', cast(floor({hour} / 24) as int))"
    name = sql.expr(f"concat({day}, 'T', lpad({hour} % 24, 2, '0'), 'Z')")
    return frame.withColumn(HOUR_COLUMN, name)


def sums_of(frame: Any) -> Sums:
    """Rows by hour, and a checksum of all their columns in which their order does not matter."""
    from pyspark.sql import functions as sql

    columns = [sql.col(f"`{name}`") for name in frame.columns]
    found = (
        frame.select(HOUR_COLUMN, sql.xxhash64(*columns).alias("hash"))
        .groupBy(HOUR_COLUMN)
        # Of two equal rows, the exclusive or says nothing: a sum of hashes does.
        .agg(
            sql.count(sql.lit(1)).alias("rows"),
            sql.sum(sql.col("hash").cast("decimal(38,0)")).alias("sum"),
        )
        .collect()
    )
    return {row[HOUR_COLUMN]: (int(row["rows"]), int(row["sum"]) % 2**64) for row in found}


# --------------------------------------------------------------------------- manifest


def read_manifest(output: Path) -> dict[str, Any]:
    """The manifest, or an empty one. Raises JobError."""
    path = output / MANIFEST
    if not path.exists():
        return {"format": FORMAT, "hours": {}}
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except ValueError:
        raise JobError(f"{path} is damaged") from None
    if found.get("format") != FORMAT:
        raise JobError(f"{path} has format {found.get('format')!r}; this reads {FORMAT}")
    return found


def write_manifest(output: Path, manifest: dict[str, Any]) -> None:
    """Whole or not at all."""
    aside = output / f"{MANIFEST}.tmp"
    with aside.open("w") as file:
        json.dump(manifest, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(output / MANIFEST)
    _sync(output)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

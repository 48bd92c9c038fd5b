"""Copies hours without live messages to parquet, each hour once, and verifies the copy.

The output has a folder `utc_hour=…` per hour, with one row per message and group including all
texts, and `_manifest.json`, which lists every complete hour with its rows, checksum and files. A
repeated run continues with the missing hours. While files are copied, a shared lock on the file
`hold` of the data folder, which backups use too, suspends retention; the kernel releases it when
the process ends.

A broker deletes ended hours according to `ended_keep_ms` of its topics. If it was started with
`--archive-hold on`, it keeps them until this job has archived them and, run with
`--endpoint URL --release`, has released them. The broker says whether it holds hours, and which of
them can no longer change. Hours are released in order from the first one, as long as the manifest
has the current version of each. A missing or changed hour ends the release.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from delaylog.storage.hours.hour_table import HourCounts
from delaylog.storage.layout import HOLD, HOUR_MS, hour_name
from pyspark_delaylog.broker_http import BrokerHttp
from pyspark_delaylog.endpoints import URL
from pyspark_delaylog.errors import JobError
from pyspark_delaylog.jobs.audit import add_folder_arguments, output_of, segment_options
from pyspark_delaylog.jobs.progress import progress
from pyspark_delaylog.jobs.session import add_connection_arguments, connection_options
from pyspark_delaylog.options import Options
from pyspark_delaylog.segments.folder import Folder, read_folder
from pyspark_delaylog.segments.options import parse_options

# ------------------------------------------------------------------------- suspending retention


@contextmanager
def suspended_retention(folder: str) -> Iterator[None]:
    """Hold the lock, if the file exists: a backup has none."""
    try:
        descriptor = os.open(f"{folder}/{HOLD}", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        yield
        return
    try:
        # The broker takes the lock briefly to check for holders, so wait.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


# --------------------------------------------------------------------- releasing archived hours

_ARCHIVE = "/v1/archive"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The hours of a broker: [released, archivable) wait for the archive."""

    released: int
    archivable: int
    next: dict[str, Any] | None
    """The first hour that cannot be archived yet: `hour`, `from_ms`, `why`."""


def ask_bounds(http: BrokerHttp) -> Bounds:
    """Ask the broker. JobError if it holds no hours, since they may be deleted meanwhile."""
    found = http.json("GET", _ARCHIVE)
    if not found["hold"]:
        raise JobError(
            "the broker does not hold ended hours, so there is nothing to release: start it "
            "(in a cluster every node) with --archive-hold on or DELAYLOG_ARCHIVE_HOLD=on, or "
            "leave --release out"
        )
    return Bounds(
        found["released_through_ms"] // HOUR_MS,
        found["archivable_through_ms"] // HOUR_MS,
        found["next"],
    )


def stands(manifest: dict[str, Any], hour: int, known: HourCounts) -> bool:
    """Whether the manifest has the current version of the hour. Old entries have no position."""
    entry = manifest["hours"].get(hour_name(hour))
    return entry is not None and entry.get("position", known.position) == known.position


def check_not_anew(folder: Folder, manifest: dict[str, Any], hours: list[int]) -> None:
    """JobError if an hour that was archived and released has new rows."""
    released_ms = manifest.get("released_through_ms", 0)
    for hour in hours:
        again = hour_name(hour) in manifest["hours"] and (hour + 1) * HOUR_MS <= released_ms
        if again and not stands(manifest, hour, folder.hours[hour]):
            raise JobError(
                f"{hour_name(hour)} was archived and released, and has other rows now (the clock "
                "was set back?): archive into another folder, so that both are kept"
            )


def releasable(
    folder: Folder, manifest: dict[str, Any], there: list[int], bounds: Bounds
) -> tuple[int, int] | None:
    """The hour up to which all hours are archived, and their rows; None for nothing to release.

    `there`: the hours that have files.
    """
    found, rows = None, 0
    for hour in sorted(there):
        if hour < bounds.released:
            continue
        if hour >= bounds.archivable or not stands(manifest, hour, folder.hours[hour]):
            break
        rows += folder.hours[hour].rows
        found = (hour + 1, rows)
    return found


# -------------------------------------------------------------------------------------- the job

HELP: Final = "ended hours to parquet, verified, each once"
MANIFEST: Final = "_manifest.json"
"""Spark ignores files that begin with an underscore, so the folder reads as one table."""
FORMAT: Final = 1
HOUR_COLUMN: Final = "utc_hour"
_STAGING: Final = "_staging"
_HOURS_AT_ONCE: Final = 24
"""How many hours are written, verified and added to the manifest together."""

Sums = dict[str, tuple[int, int]]
"""(rows, checksum) by the name of an hour."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for input and output."""
    add_folder_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="list hours that would be archived")
    add_connection_arguments(parser, "the broker, for --release", required=False)
    parser.add_argument(
        "--release",
        action="store_true",
        help="archive hours that can no longer change, and let the broker remove them",
    )


def run(spark: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Archive the missing hours. Returns a summary."""
    if not args.release:
        return _run(spark, args)
    if not args.endpoint and not os.environ.get(URL):
        raise JobError("--release needs --endpoint, the address of the broker that holds the hours")
    options = Options.parse({**connection_options(args), "topic": "none"})
    with closing(BrokerHttp(options)) as http:
        bounds = ask_bounds(http)
        done = _run(spark, args, bounds)
        if args.dry_run:
            return done
        # The hours archived now, and those of an earlier run that failed before the release.
        output, path = output_of(args), segment_options(args)["path"]
        manifest, folder = read_manifest(output), read_folder(path)
        found = releasable(folder, manifest, _there(folder), bounds)
        name = None
        if found is not None:
            through, rows = found
            through_ms = through * HOUR_MS
            members = {"through_ms": through_ms, "position": folder.position, "rows": rows}
            http.json("POST", f"{_ARCHIVE}/release", members)
            name = hour_name(through)
            manifest["released_through_ms"] = through_ms
            write_manifest(output, manifest)
        return {**done, "released_through": name}


def _run(spark: Any, args: argparse.Namespace, bounds: Bounds | None = None) -> dict[str, Any]:
    output = output_of(args)
    manifest = read_manifest(output)
    begun = time.monotonic()
    rows = 0
    options = segment_options(args, includeBody="true")
    with suspended_retention(options["path"]):
        folder = read_folder(options["path"])
        check_broker(output, manifest, folder)
        hours = ended_hours(folder, manifest, options, bounds)
        before = len(manifest["hours"].keys() - {hour_name(hour) for hour in hours})
        following = next_hour(folder) if bounds is None else bounds.next
        if args.dry_run:
            return {
                "job": "archive",
                "would_archive": [hour_name(hour) for hour in hours],
                "archived_before": before,
                "next": following,
            }
        output.mkdir(parents=True, exist_ok=True)
        with progress(spark, "archive", lambda: rows):
            for at in range(0, len(hours), _HOURS_AT_ONCE):
                found = _archive(spark, options, output, hours[at : at + _HOURS_AT_ONCE])
                rows += sum(each["rows"] for each in found.values())
                for hour in hours[at : at + _HOURS_AT_ONCE]:
                    found[hour_name(hour)]["position"] = folder.hours[hour].position
                manifest["hours"].update(found)
                manifest |= broker_of(folder)
                write_manifest(output, manifest)
    return {
        "job": "archive",
        "hours": len(hours),
        "rows": rows,
        "archived_before": before,
        "next": following,
        "seconds": round(time.monotonic() - begun, 2),
    }


def ended_hours(
    folder: Folder,
    manifest: dict[str, Any],
    options: dict[str, str],
    bounds: Bounds | None = None,
) -> list[int]:
    """Hours that get no more rows, have no live messages, and are not in the manifest.

    With the bounds of a broker that holds hours: those that can no longer change, and whose current
    version is not in the manifest.
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


def next_hour(folder: Folder) -> dict[str, Any] | None:
    """The first hour that cannot be archived yet, as `GET /v1/archive` says it.

    A folder does not say which topics hold an hour.
    """
    for hour in _there(folder):
        if hour >= folder.hour_floor:
            why = "an hour takes messages until an hour after its end"
            return {"hour": hour_name(hour), "from_ms": (hour + 2) * HOUR_MS, "why": why}
        if not folder.hours[hour].ended:
            why = "messages of it live; delaylog archive show names their topics"
            return {"hour": hour_name(hour), "from_ms": None, "why": why}
    return None


def _there(folder: Folder) -> list[int]:
    """The hours that were not removed since the checkpoint, in order."""
    hours = f"{folder.path}/hours"
    return [
        hour
        for hour in sorted(folder.hours)
        if os.path.exists(f"{hours}/{hour_name(hour)}/delay.index")
    ]


def _archive(
    spark: Any, options: dict[str, str], output: Path, hours: list[int]
) -> dict[str, dict[str, Any]]:
    """Write hours to a temporary place, verify and move them. Returns manifest entries."""
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
        raise JobError(f"the copy differs from the folder in {', '.join(wrong)}")
    entries = {}
    for name in sorted(names):
        made, place = staging / f"{HOUR_COLUMN}={name}", output / f"{HOUR_COLUMN}={name}"
        if place.exists():
            # Left by a run that failed before it wrote its manifest.
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
    """Add the name of the hour as a column."""
    from pyspark.sql import functions as sql

    # With integers: formatting a timestamp would use the time zone of the session.
    hour = "floor(unix_seconds(hour) / 3600)"
    day = f"date_add(date'1970-01-01', cast(floor({hour} / 24) as int))"
    name = sql.expr(f"concat({day}, 'T', lpad({hour} % 24, 2, '0'), 'Z')")
    return frame.withColumn(HOUR_COLUMN, name)


def sums_of(frame: Any) -> Sums:
    """The number of rows per hour, and a checksum over all columns, independent of row order."""
    from pyspark.sql import functions as sql

    columns = [sql.col(f"`{name}`") for name in frame.columns]
    found = (
        frame.select(HOUR_COLUMN, sql.xxhash64(*columns).alias("hash"))
        .groupBy(HOUR_COLUMN)
        # XOR would cancel two equal rows, a sum of hashes does not.
        .agg(
            sql.count(sql.lit(1)).alias("rows"),
            sql.sum(sql.col("hash").cast("decimal(38,0)")).alias("sum"),
        )
        .collect()
    )
    return {row[HOUR_COLUMN]: (int(row["rows"]), int(row["sum"]) % 2**64) for row in found}


# --------------------------------------------------------------------------- manifest


def broker_of(folder: Folder) -> dict[str, str]:
    """The members of a manifest that say whose hours it lists."""
    return {"folder": folder.path, "broker": folder.broker}


def check_broker(output: Path, manifest: dict[str, Any], folder: Folder) -> None:
    """JobError if the manifest lists hours of another broker."""
    if manifest.get("broker", folder.broker) != folder.broker:
        raise JobError(
            f"{output} holds the archive of another broker, that of {manifest['folder']}: archive "
            f"{folder.path} into a folder of its own"
        )


def read_manifest(output: Path) -> dict[str, Any]:
    """Read the manifest; an empty one if it is missing. Raises JobError."""
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
    """Write the manifest atomically."""
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

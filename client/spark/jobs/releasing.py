"""Releases archived hours at a broker that holds them: the last step of `archive`.

The broker says whether it holds hours, and which of them can no longer change. Hours are released
in order from the first one, as long as the manifest has the current version of each. A missing or
changed hour ends the release.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from delaylog.storage.hours.hour_counts import HourCounts
from delaylog.storage.layout import HOUR_MS, hour_name
from pyspark_delaylog.broker_http import BrokerHttp
from pyspark_delaylog.errors import JobError
from pyspark_delaylog.jobs.connecting import connection_options
from pyspark_delaylog.options import Options
from pyspark_delaylog.segments.folder import Folder

_ARCHIVE = "/v1/archive"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The hours of a broker: [released, archivable) wait for the archive."""

    released: int
    archivable: int
    next: dict[str, Any] | None
    """The first hour that cannot be archived yet: `hour`, `from_ms`, `why`."""


class ReleasingBroker:
    """The broker whose folder is archived."""

    def __init__(self, http: BrokerHttp) -> None:
        self._http = http

    def bounds(self) -> Bounds:
        """Ask the broker. JobError if it holds no hours, since they may be deleted meanwhile."""
        found = self._http.json("GET", _ARCHIVE)
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

    def release(self, through: int, position: int, rows: int) -> bool:
        """Release the hours before `through`. Returns False if they already were."""
        members = {"through_ms": through * HOUR_MS, "position": position, "rows": rows}
        found = self._http.json("POST", f"{_ARCHIVE}/release", members)
        return bool(found["result"] == "done")


@contextmanager
def open_broker(args: argparse.Namespace) -> Iterator[ReleasingBroker]:
    """Open the broker that the arguments name."""
    http = BrokerHttp(Options.parse({**connection_options(args), "topic": "none"}))
    try:
        yield ReleasingBroker(http)
    finally:
        http.close()


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

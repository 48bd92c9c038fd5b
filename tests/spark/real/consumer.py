"""A driver in a process of its own that consumes a topic, and may die between output and commit.

python -m tests.spark.real.consumer ENDPOINT FOLDER DIES_AT LEASE_MS
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.spark.session import prepare_environment, start_session
from tests.spark.test_consuming_stream import consume


class Address:
    """Of a broker."""

    def __init__(self, url: str) -> None:
        self.url = url


def write_batch(folder: Path, frame: Any, number: int) -> None:
    """Write the ids of a batch under its number, as an idempotent output does."""
    rows = sorted(row.id for row in frame.collect())
    aside = folder / f"batch-{number}.tmp"
    aside.write_text(json.dumps(rows))
    aside.replace(folder / f"batch-{number}.json")


def outputs(folder: Path) -> dict[str, list[str]]:
    """The ids of each output, by its name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def main() -> None:
    endpoint, folder = sys.argv[1], Path(sys.argv[2])
    # The number of the batch whose output is the last deed of the driver; -1: it lives.
    dies_at, lease_ms = int(sys.argv[3]), int(sys.argv[4])
    prepare_environment()
    own = folder / "driver"
    own.mkdir(exist_ok=True)
    spark: SparkSession = start_session(own)

    def each(frame: Any, number: int) -> None:
        write_batch(folder, frame, number)
        if number == dies_at:
            # The JVM too, which would commit otherwise.
            os.killpg(0, signal.SIGKILL)

    consume(spark, Address(endpoint), folder, each, leaseMs=lease_ms)


if __name__ == "__main__":
    main()

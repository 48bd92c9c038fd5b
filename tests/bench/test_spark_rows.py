"""The rows that the bench of Spark loads: as many as asked, of one size, each with its own id."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

BENCH = Path(__file__).parents[2] / "bench"
ROWS = 1_003


def spark_rows() -> Any:
    """The module, whose neighbours are imported by bare name."""
    sys.path.insert(0, str(BENCH))
    try:
        return importlib.import_module("spark_rows")
    finally:
        sys.path.remove(str(BENCH))


def test_every_row_is_there_once_with_its_size_and_time(tmp_path: Path) -> None:
    """With a number of rows that the files cannot share evenly."""
    rows = spark_rows()
    folder = Path(rows.write_rows(tmp_path / "rows", ROWS))
    assert len(list(folder.glob("*.parquet"))) == rows.FILES
    table = pq.read_table(folder)
    assert sorted(table["id"].to_pylist()) == [f"id-{number:09d}" for number in range(ROWS)]
    assert set(pc.binary_length(table["value"]).to_pylist()) == {100}
    dues = sorted(due.timestamp() * 1000 for due in table["deliver_at"].to_pylist())
    assert dues[-1] - dues[0] < rows.SPREAD_MS
    assert len(set(table["value"].to_pylist())) == ROWS

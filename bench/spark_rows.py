"""What the bench of Spark loads: a session of this machine, and parquet of as many rows as asked.

The rows are made by numpy and written by pyarrow, several files at once by none: nothing of Spark
is warm, or busy, because of them. Due times lie far off, spread over a day. Rows have ids of their
own, which a frame may leave out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from settings import BODY_BYTES

FILES: Final = 8
DUE_AHEAD_MS: Final = 24 * 3_600_000
SPREAD_MS: Final = 24 * 3_600_000
ROWS_A_BATCH: Final = 50_000
"""Of what Spark hands to Python: as many as the largest request takes."""
_ROOT: Final = Path(__file__).parents[1]


def write_rows(folder: Path, rows: int) -> str:
    """A folder of parquet: value, id, deliver_at."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    first_ms = int(time.time() * 1000) + DUE_AHEAD_MS
    ends = [rows * number // FILES for number in range(FILES + 1)]
    for number, (first, end) in enumerate(pairwise(ends)):
        count = end - first
        bodies = np.random.default_rng(number).integers(0, 256, count * BODY_BYTES, np.uint8)
        dues_ms = first_ms + np.arange(first, end) * SPREAD_MS // rows
        table = pa.table(
            {
                "value": _fixed(bodies, BODY_BYTES, pa.binary()),
                "id": _fixed(_digits(first, end), _ID_BYTES, pa.string()),
                "deliver_at": pa.array(dues_ms * 1000, pa.timestamp("us", tz="UTC")),
            }
        )
        pq.write_table(table, folder / f"rows-{number}.parquet")
    return str(folder)


_ID_BYTES: Final = 12


def _digits(first: int, end: int) -> np.ndarray:
    """`id-000000123` for each number, one after another."""
    places = 10 ** np.arange(_ID_BYTES - 4, -1, -1)
    out = np.empty((end - first, _ID_BYTES), np.uint8)
    out[:, :3] = np.frombuffer(b"id-", np.uint8)
    out[:, 3:] = np.arange(first, end)[:, None] // places % 10 + ord("0")
    return out.ravel()


def _fixed(raw: np.ndarray, size: int, kind: Any) -> Any:
    """An array of values of one size each."""
    import pyarrow as pa

    ends = pa.py_buffer(np.arange(0, len(raw) + 1, size, dtype=np.int32))
    return pa.Array.from_buffers(kind, len(raw) // size, [None, ends, pa.py_buffer(raw)])


@contextmanager
def spark_session() -> Iterator[Any]:
    """A session on all cores, as the jobs have one."""
    from pyspark_delaylog.jobs.session import add_session_arguments, open_session

    script = _ROOT / "tests" / "spark" / "get_java.sh"
    java = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True)
    os.environ["JAVA_HOME"] = java.stdout.splitlines()[-1]
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Workers find the sinks of the bench by this.
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    parser = argparse.ArgumentParser()
    add_session_arguments(parser)
    words = ["--conf", f"spark.sql.execution.arrow.maxRecordsPerBatch={ROWS_A_BATCH}"]
    args = parser.parse_args(words)
    args.job = "bench"
    with open_session(args) as spark:
        yield spark

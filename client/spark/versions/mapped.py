"""write_frame: a batch write without a data source, for PySpark 3.5 and for foreachBatch.

The tasks of `mapInArrow` call the writer of the batch sink and return its messages as rows, and the
driver commits them, so the guarantees are those of the format. Spark returns the rows of the
successful attempt at each task only.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from pyspark_delaylog.options import Options
from pyspark_delaylog.results.load_result import LoadResult
from pyspark_delaylog.writers import DelaylogBatchWriter

MESSAGE: Final = "message"


def write_frame(frame: Any, **options: object) -> LoadResult:
    """Write a DataFrame as `format("delaylog")` does, with the same options. Returns its counts.

    It works in every thread, so tables may be loaded in parallel.

    Raises OptionError or SchemaError before any task, and the errors of Spark if a task fails;
    then nothing of a staged load is visible.
    """
    given = {name: _text(value) for name, value in options.items()}
    writer = DelaylogBatchWriter(Options.parse(given), frame.schema)

    def load(batches: Iterable[Any]) -> Iterator[Any]:
        message = pickle.dumps(writer.write(iter(batches)))
        yield pa.RecordBatch.from_arrays([pa.array([message], pa.binary())], names=[MESSAGE])

    try:
        rows = frame.mapInArrow(load, f"{MESSAGE} binary").collect()
        return writer.finish([pickle.loads(row[MESSAGE]) for row in rows])
    except BaseException:
        writer.abort([])
        raise


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

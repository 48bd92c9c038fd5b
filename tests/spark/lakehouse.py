"""The programs of examples/spark/lakehouse; as a program, one that dies in the middle.

    python tests/spark/lakehouse.py delta|iceberg ARCHIVE LAKE

The program ends by SIGKILL after the rows were read, and before the commit.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

FOLDER = Path(__file__).parents[2] / "examples" / "spark" / "lakehouse"
ICEBERG_TABLE = "delaylog.messages"

Found = Counter[tuple[str, str, int]]
"""How many rows have this topic, state and size of the body."""


def recipes() -> dict[str, Any]:
    """What the programs define."""
    names: dict[str, Any] = {}
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    for path in sorted(FOLDER.glob("*.py")):
        exec(compile(path.read_text(), path.name, "exec"), names)
    return names


def catalog_of(lake: Path) -> Any:
    """A catalog in a file, with the namespace that the recipe needs."""
    from pyiceberg.catalog.sql import SqlCatalog

    lake.mkdir(exist_ok=True)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{lake}/catalog.db", warehouse=lake.as_uri())
    catalog.create_namespace_if_not_exists("delaylog")
    return catalog


def load(way: str, names: dict[str, Any], archive: Path, lake: Path, spark: Any = None) -> None:
    """By the recipe of this name."""
    if way == "parquet":
        names["load_parquet"](spark, archive, lake)
    elif way == "delta":
        names["load_delta"](archive, str(lake))
    else:
        catalog = catalog_of(lake)
        names["load_iceberg"](archive, catalog, ICEBERG_TABLE)
        catalog.close()


def read(way: str, lake: Path, spark: Any) -> Found:
    """All rows of the table."""
    columns = ("topic", "state", "body_size")
    if way == "parquet":
        table = recipes()["read_parquet"](spark, lake)
        return Counter(tuple(row) for row in table.select(*columns).collect())
    if way == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(str(lake)).to_pyarrow_table(columns=list(columns))
    else:
        catalog = catalog_of(lake)
        table = catalog.load_table(ICEBERG_TABLE).scan(selected_fields=columns).to_arrow()
        catalog.close()
    return Counter(tuple(row[name] for name in columns) for row in table.to_pylist())


def partitions(way: str, lake: Path) -> int:
    """How many there are: by day, and topic but for Iceberg."""
    if way == "parquet":
        return len(list(lake.glob("day=*/topic=*")))
    if way == "delta":
        from deltalake import DeltaTable

        return len(DeltaTable(str(lake)).partitions())
    catalog = catalog_of(lake)
    count: int = catalog.load_table(ICEBERG_TABLE).inspect.partitions().num_rows
    catalog.close()
    return count


def _die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _then_die(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows
        _die()

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


if __name__ == "__main__":
    kind, archive, lake = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    found = recipes()
    if kind == "delta":
        real = found["write_deltalake"]
        found["write_deltalake"] = lambda table, rows, **how: real(table, _then_die(rows), **how)
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        SqlCatalog.commit_table = _die
    load(kind, found, archive, lake)

"""An archive as an Iceberg table, which refers to the files of the archive: no row is copied."""

from pathlib import Path

import pyarrow.parquet as pq
from archived_hours import hours_of
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In
from pyiceberg.transforms import DayTransform


def load_iceberg(archive: Path, catalog: Catalog, name: str) -> None:
    files = {
        str(archive / f"utc_hour={hour}" / file["name"]): hour
        for hour, copy in hours_of(archive).items()
        for file in copy["files"]
    }
    if not files:
        return
    if not catalog.table_exists(name):
        schema = pq.read_schema(next(iter(files)))
        with catalog.create_table_transaction(name, schema) as new, new.update_spec() as spec:
            spec.add_field("hour", DayTransform(), "day")
    table = catalog.load_table(name)
    known = set(table.inspect.data_files()["file_path"].to_pylist())
    # The archive has replaced these files: their hours were archived again.
    gone = {Path(file).parent.name.removeprefix("utc_hour=") for file in known - files.keys()}
    with table.transaction() as change:
        if gone:
            change.delete(In("hour", [f"{hour[:-1]}:00:00+00:00" for hour in gone]))
        if files.keys() - known:
            change.add_files(sorted(files.keys() - known))

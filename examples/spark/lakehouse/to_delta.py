"""An archive as a Delta table, each hour once, by delta-rs: needs no packages in Spark."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from archived_hours import hours_of
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake


def load_delta(archive: Path, table: str) -> None:
    known = DeltaTable(table) if DeltaTable.is_deltatable(table) else None
    copies = hours_of(archive)
    versions: dict[str, int] = {}
    for hour, copy in copies.items():
        # The sum changes when an hour of the day is added, or archived again.
        versions[hour[:10]] = versions.get(hour[:10], 0) + copy["archived_at_ms"]
    rows = ds.dataset(archive, partitioning="hive")
    columns = {name: ds.field(name) for name in rows.schema.names}
    columns["day"] = ds.field("hour").cast(pa.date32())
    for day, version in versions.items():
        name = f"delaylog {day}"
        if known is not None and known.transaction_version(name) == version:
            continue
        hours = [hour for hour in copies if hour.startswith(day)]
        write_deltalake(
            table,
            rows.scanner(columns=columns, filter=ds.field("utc_hour").isin(hours)).to_reader(),
            partition_by=["day", "topic"],
            mode="overwrite",
            predicate=f"day = '{day}'",
            commit_properties=CommitProperties(app_transactions=[Transaction(name, version)]),
        )

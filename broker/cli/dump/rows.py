"""`delaylog dump` of rows and states: of an hour's files, and of runs of the far tier.

A run contains rows and their records, so a line of it shows what those of delay.index and delay.log
show.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from delaylog.broker.cli.dump.contents import Lines, record_members
from delaylog.broker.cli.values import utc_text
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File
from delaylog.storage.files.os_file_system import ReadOnlyFileSystem
from delaylog.storage.folder.checkpoint import Checkpoint, saved_hours
from delaylog.storage.hours.far.sorted_run import RunFacts, SortedRun
from delaylog.storage.layout import (
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_MASK,
    RUN_BLOCK_ROWS,
    RUN_HEADER,
    RUN_HEADER_SIZE,
    RUN_MAGIC,
    STATE_ENTRY,
    STATE_ENTRY_SIZE,
    Cause,
    MessageState,
    hour_name,
    ref_to_id,
)

_PART_RECORDS: Final = 4_096


def time_text(ms: int) -> str | None:
    """A readable time; None for 0, and for a time that no calendar date can express."""
    shown = utc_text(ms)
    return None if ms == 0 or not shown.endswith("Z") else shown


def records_of(file: File, dtype: np.dtype[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number from 1, fields) of every record."""
    size, part = file.size() // dtype.itemsize, _PART_RECORDS
    for start in range(0, size, part):
        raw = file.pread(min(part, size - start) * dtype.itemsize, start * dtype.itemsize)
        yield from enumerate(_fields(np.frombuffer(raw, dtype)), start + 1)


def _fields(records: np.ndarray) -> Iterator[dict[str, Any]]:
    names = [name for name in records.dtype.names or () if name != "unused"]
    columns = [records[name].tolist() for name in names]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def dump_index(file: File, path: Path) -> Lines:  # noqa: ARG001 (one signature for all)
    """A line for each row."""
    for _, row in records_of(file, INDEX_ENTRY):
        yield _row_members(row)


def _row_members(row: dict[str, Any]) -> dict[str, Any]:
    for name in ("deliver_at", "sent_at"):
        row[name] = time_text(row[name])
    row["origin"] = ref_to_id(row["origin"])
    for name in ("tag_mask", "key_hash", "id_hash"):
        row[name] = f"{row[name]:016x}"
    return row


def dump_state(file: File, path: Path) -> Lines:  # noqa: ARG001
    """A line for each row that was ever delivered or changed."""
    for number, entry in records_of(file, STATE_ENTRY):
        if any(entry.values()):
            yield {"row": number} | _state_members(entry)


def _state_members(entry: dict[str, Any]) -> dict[str, Any]:
    kind, cause = entry["state"], entry["cause"]
    entry["state"] = MessageState(kind).name if kind in set(MessageState) else kind
    entry["cause"] = Cause(cause).name if cause in set(Cause) else cause
    entry["lease"] = f"{entry['lease']:016x}"
    entry["time"] = time_text(entry["time"])
    entry["forward"] = ref_to_id(entry["forward"]) if entry["forward"] else None
    return entry


# --------------------------------------------------------------------------- the far tier

_KINDS: Final = {INDEX_ENTRY_SIZE: ("rows", INDEX_ENTRY), STATE_ENTRY_SIZE: ("states", STATE_ENTRY)}


def dump_run(file: File, path: Path) -> Lines:
    """The header's content, then a line for each row or state, with its hour and row number."""
    raw = file.pread(RUN_HEADER_SIZE, 0)
    fields = RUN_HEADER.unpack(raw) if len(raw) == RUN_HEADER_SIZE else (0,) * 10
    magic, _, width, count, log_size, first, last, *_ = fields
    if magic != RUN_MAGIC or width not in _KINDS:
        yield {"error": "a damaged run"}
        return
    what, dtype = _KINDS[width]
    facts = RunFacts(0, count, log_size, 0, 0, first, last)
    try:
        run = SortedRun(ReadOnlyFileSystem(), str(path), dtype, facts)
    except CorruptionError as error:
        yield {"error": str(error)}
        return
    try:
        yield {what: count, "record_bytes": log_size, "positions": [first, last]}
        for start in range(0, count, RUN_BLOCK_ROWS):
            yield from _block(run, start, min(start + RUN_BLOCK_ROWS, count), dtype)
    finally:
        run.close()


def _block(run: SortedRun, start: int, stop: int, dtype: np.dtype[Any]) -> Lines:
    at = np.arange(start, stop)
    try:
        rows = run.rows(at)
    except CorruptionError as error:
        yield {"error": str(error)}
        return
    keys = run.keys_between(start, stop).tolist()
    heads = [{"hour": hour_name(key >> INDEX_BITS), "row": key & INDEX_MASK} for key in keys]
    if dtype == STATE_ENTRY:
        for head, entry in zip(heads, _fields(rows), strict=True):
            yield head | _state_members(entry)
        return
    offsets, sizes = rows["offset"].astype(np.int64), rows["size"].astype(np.int64)
    try:
        records, damage = run.records(at, offsets, sizes), {}
    except CorruptionError as error:
        records, damage = b"", {"error": str(error)}
    place = 0
    for head, row, fields in zip(heads, rows, _fields(rows), strict=True):
        record = records[place : place + fields["size"]]
        place += fields["size"]
        yield head | _row_members(fields) | (damage or record_members(record, row))


def saved_far_hours(checkpoint: Checkpoint) -> dict[str, Any]:
    """The far hours of a checkpoint: the first far hour, and the counts of each that has any."""
    table = checkpoint.table
    counts = saved_hours({hour: table[hour] for hour in table.far_hours().tolist()})
    return {"from": table.far_from, "counts": {str(hour): each for hour, each in counts.items()}}

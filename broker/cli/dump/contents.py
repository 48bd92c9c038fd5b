"""`delaylog dump` of files with users' data: records, ids, and plain text.

As in the rest of `dump`, damage does not end the output: the line of an unreadable record has an
`error`. A record does not describe itself, so `delay.log` is read with the rows of the index in the
same folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgpack
import numpy as np
import orjson

from delaylog.broker.calls.forms.deliveries import own_members
from delaylog.broker.cli.failing import UsageError
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File
from delaylog.storage.files.os_file_system import ReadOnlyFileSystem
from delaylog.storage.layout import INDEX_ENTRY, INDEX_ENTRY_SIZE, RowArray, ref_to_id
from delaylog.storage.messages.records import split_record
from delaylog.storage.runs.key_run import KeyRun
from delaylog.storage.runs.run_store import read_stored

Lines = Iterator[dict[str, Any]]
_PART_ROWS: Final = 1_024


def dump_bodies(file: File, path: Path) -> Lines:
    """A line for each row, with the content of its record."""
    beside = path.with_name("delay.index")
    if not beside.is_file():
        raise UsageError(f"{path.name} cannot be read without {beside}, which does not exist")
    with closing(ReadOnlyFileSystem().open(str(beside))) as index:
        count = index.size() // INDEX_ENTRY_SIZE
        for start in range(0, count, _PART_ROWS):
            size = min(_PART_ROWS, count - start) * INDEX_ENTRY_SIZE
            rows = np.frombuffer(index.pread(size, start * INDEX_ENTRY_SIZE), INDEX_ENTRY)
            for number, row in enumerate(rows, start + 1):
                yield {"row": number} | _record(file, row)


def _record(file: File, row: RowArray) -> dict[str, Any]:
    offset, size = int(row["offset"]), int(row["size"])
    line: dict[str, Any] = {"offset": offset, "size": size}
    if offset + size > file.size():
        return line | {"error": "the record ends beyond the end of the file"}
    return line | record_members(file.pread(size, offset), row)


def record_members(record: bytes, row: RowArray) -> dict[str, Any]:
    """The content of a row's record."""
    try:
        found = split_record(record, row)
    except (ValueError, msgpack.UnpackException) as error:
        return {"error": f"the record cannot be decoded: {error}"}
    name = found.id or ref_to_id(int(row["origin"]))
    line = {"id": name, "key": found.key or None, "tags": found.tags}
    return line | own_members(found, packed=False)


def dump_ids(file: File, path: Path) -> Lines:  # noqa: ARG001 (one signature for all)
    """A line for each id of a run: its key (topic and id hash mixed) and ref; null = forgotten."""
    fs = ReadOnlyFileSystem()
    try:
        with closing(KeyRun(fs, str(path))) as run:
            yield from (
                {"key": f"{key:016x}", "ref": ref_to_id(ref) if ref else None}
                for keys, refs in run.slices()
                for key, ref in zip(keys.tolist(), refs.tolist(), strict=True)
            )
            for _ in run.check(fs):
                pass
    except CorruptionError as error:
        yield {"offset": error.position, "error": error.what}


def dump_ids_index(file: File, path: Path) -> Lines:  # noqa: ARG001
    """The log position up to which the runs have all ids, and their sizes, oldest run first."""
    try:
        stored = read_stored(ReadOnlyFileSystem(), str(path.parent))
    except CorruptionError as error:
        yield {"error": error.what}
        return
    runs = [{"run": f"{number}.ids", "ids": count} for number, count in stored.runs]
    yield {"position": stored.position, "runs": runs}


def dump_text(file: File, path: Path) -> Lines:  # noqa: ARG001
    """A line for each line of the file `crash`: the traceback of a process that has died."""
    text = file.pread(file.size(), 0).decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), 1):
        yield {"line": number, "text": line}


def dump_object(file: File, path: Path) -> Lines:  # noqa: ARG001
    """The JSON object that the file consists of, unchanged."""
    try:
        found = orjson.loads(file.pread(file.size(), 0))
    except orjson.JSONDecodeError as error:
        yield {"error": f"not JSON: {error}"}
        return
    yield found if isinstance(found, dict) else {"error": "not an object"}

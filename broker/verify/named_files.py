"""Verify the files that checkpoints name: runs of far hours, snapshots, files of schedules."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Mapping
from typing import Any, Final

import numpy as np

from delaylog.broker.engine.keyspace.keyspace_base import KeyspaceBase
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER as KEYSPACE
from delaylog.broker.engine.keyspace.keyspace_files import Reader, position_of_name
from delaylog.broker.engine.keyspace.keyspace_part import is_missing, keyspace_part
from delaylog.broker.engine.schedules.columns import Column, Columns
from delaylog.broker.engine.schedules.definitions import Definitions
from delaylog.broker.engine.schedules.rows_file import RowsFile, read_rows
from delaylog.broker.engine.schedules.schedule import Schedule
from delaylog.broker.engine.schedules.table import FOLDER as SCHEDULES
from delaylog.broker.engine.schedules.table import named_files
from delaylog.broker.engine.upkeep.saved_state import FAR
from delaylog.broker.verify.physical_log import LogRange
from delaylog.broker.verify.report import Report
from delaylog.extras import REDIS, missing_part
from delaylog.storage.columns.questions import every, rising
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.folder.checkpoint import FarRuns
from delaylog.storage.hours.far.sorted_run import BLOCK_ROWS, RunFacts, SortedRun, run_size
from delaylog.storage.hours.states.state_seal import broken
from delaylog.storage.layout import (
    HOUR_MS,
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_MASK,
    Int64Array,
    RowArray,
)
from delaylog.storage.log.frames import Frame

_SLICE_BLOCKS: Final = 16
_SLICE_SCHEDULES: Final = 1_024


def verify_far(
    fs: FileSystem, folder: str, runs: FarRuns, report: Report
) -> Generator[None, None, None]:
    """Check the runs that a checkpoint names; other files are left-overs."""
    place = f"{folder}/{FAR}"
    present = set(fs.listdir(place)) if fs.exists(place) else set()
    # Other files belong to the checkpoint before, or to a run that was being written.
    report.files += len(present - runs.sizes.keys())
    for dtype, facts in runs.each():
        yield from _far_run(fs, place, dtype, facts, report)


def _far_run(
    fs: FileSystem, place: str, dtype: np.dtype[Any], facts: RunFacts, report: Report
) -> Generator[None, None, None]:
    name = f"{FAR}/{facts.number}.run"
    if not fs.exists(f"{place}/{facts.number}.run"):
        report.damaged(name, 0, f"missing; {facts.rows} rows were durable")
        return
    report.files += 1
    report.bytes_read += run_size(facts, dtype)
    try:
        run = SortedRun(fs, f"{place}/{facts.number}.run", dtype, facts)
    except CorruptionError as error:
        report.damaged(name, error.position, error.what)
        return
    try:
        last = -1
        for first in range(0, facts.rows, BLOCK_ROWS * _SLICE_BLOCKS):
            stop = min(first + BLOCK_ROWS * _SLICE_BLOCKS, facts.rows)
            at = np.arange(first, stop)
            keys, rows = run.keys_between(first, stop), run.rows(at)
            if dtype == INDEX_ENTRY:
                offsets, sizes = rows["offset"].astype(np.int64), rows["size"].astype(np.int64)
                run.records(at, offsets, sizes)
                good = _rows_are_those_of(keys, rows)
            else:
                good = not broken(rows).any()
            if not good or int(keys[0]) <= last or not rising(keys):
                report.damaged(name, first, "rows that do not match their keys")
                return
            last = int(keys[-1])
            yield
    except CorruptionError as error:
        report.damaged(name, error.position, error.what)
    finally:
        run.close()


def _rows_are_those_of(keys: Int64Array, rows: RowArray) -> bool:
    number = rows["global_index"] == keys & INDEX_MASK
    hour = rows["deliver_at"] // HOUR_MS == keys >> INDEX_BITS
    return every(number) and every(hour)


def verify_keyspace(
    fs: FileSystem,
    folder: str,
    bases: list[tuple[KeyspaceBase, int]],
    log: LogRange,
    report: Report,
) -> Generator[None, None, None]:
    """Check all snapshots, yielding now and then.

    `bases` = for each intact checkpoint: the base from which a start restores the keyspace, and the
    checkpoint's position.
    """
    place = f"{folder}/{KEYSPACE}"
    names = fs.listdir(place) if fs.exists(place) else []
    wanted = {base.file for base, _ in bases if base.file}
    for name in sorted(wanted - set(names)):
        report.damaged(f"{KEYSPACE}/{name}", 0, "a snapshot that a checkpoint names is missing")
    for name in names:
        if position_of_name(name) is None:
            report.note(f"{KEYSPACE}/{name}", 0, "not a snapshot; a start removes unfinished ones")
            continue
        if is_missing():
            report.note(f"{KEYSPACE}/{name}", 0, f"not checked: {missing_part(REDIS)}")
            continue
        size = yield from _snapshot(fs, folder, name, report)
        for base, _ in bases:
            if base.file == name and size is not None and base.size != size:
                what = f"{size} bytes, but the checkpoint says {base.size}"
                report.damaged(f"{KEYSPACE}/{name}", 0, what)
        if name not in wanted and bases:
            report.note(f"{KEYSPACE}/{name}", 0, "a snapshot that no checkpoint names")
    for base, position in bases:
        first, last = (bisect_left(log.keyspace, at) for at in (base.position, position))
        if base.position < log.first and base.frames:
            what = f"the log begins here, but the keyspace needs frames from {base.position} on"
            report.damaged("log", log.first, what)
        elif base.frames != last - first:
            what = (
                f"{last - first} frames of the keyspace from here to {position}; the checkpoint "
                f"counts {base.frames}"
            )
            report.damaged("log", base.position, what)


def _snapshot(
    fs: FileSystem, folder: str, name: str, report: Report
) -> Generator[None, None, int | None]:
    """Check one file; return its size if it is intact."""
    report.files += 1
    part = keyspace_part()
    file = fs.open(f"{folder}/{KEYSPACE}/{name}")
    try:
        report.bytes_read += file.size()
        check = part.ChunkCheck(Reader(file))
        while check.next() is not None:
            yield
        if check.summary.position != position_of_name(name):
            what = f"its position is {check.summary.position}, which its name does not say"
            report.damaged(f"{KEYSPACE}/{name}", 0, what)
            return None
        return check.summary.size
    except part.SnapshotError as error:
        report.damaged(f"{KEYSPACE}/{name}", error.offset, error.what)
        return None
    finally:
        file.close()


def verify_schedules(
    fs: FileSystem, folder: str, saved: Mapping[str, Any], log: LogRange, report: Report
) -> Generator[None, None, None]:
    """Check what a checkpoint (`saved`) names. Definitions in the log are checked with the log."""
    place, named = f"{folder}/{SCHEDULES}", named_files(saved)
    present = set(fs.listdir(place)) if fs.exists(place) else set()
    for name in sorted(present):
        report.files += 1
        report.bytes_read += named.get(name, 0)
    needed = saved["log_from"]
    if needed < log.first:
        what = f"schedules need the log from {needed}, and it begins at {log.first}"
        report.damaged(SCHEDULES, 0, what)
    definitions = Definitions(fs, place, _no_frame, Columns())
    try:
        for block in read_rows(fs, place, RowsFile(*saved["rows"])):
            used = np.flatnonzero((block[Column.NUMBER] != 0) & (block[Column.PLACE] >= 0))
            for at, slot in enumerate(used.tolist()):
                row = block[:, slot].tolist()
                number, where, size = row[Column.NUMBER], row[Column.PLACE], row[Column.SIZE]
                one = Schedule.unpack(definitions.read(number, where, size))
                if (one.number, one.topic) != (number, row[Column.TOPIC]):
                    raise CorruptionError(
                        f"the definition of schedule {one.name!r} in the row of another",
                        path=f"{place}/{RowsFile(*saved['rows']).name}",
                        position=slot,
                    )
                if at % _SLICE_SCHEDULES == 0:
                    yield
    except CorruptionError as error:
        report.damaged(error.path.removeprefix(f"{folder}/"), error.position, error.what)
    finally:
        definitions.close()


def _no_frame(position: int) -> Frame:
    raise AssertionError(position)

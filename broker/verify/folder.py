"""Verify a whole data folder that no process serves."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from delaylog.broker.backup.manifest import MANIFEST
from delaylog.broker.calls.access.first_admin import FILE as FIRST_ADMIN
from delaylog.broker.cluster.copies.incoming import ASIDE, COPIED, INCOMING, MARK, PLACING
from delaylog.broker.engine.hold import FILE as HELD
from delaylog.broker.engine.hold import read_order
from delaylog.broker.engine.keyspace.keyspace_base import KeyspaceBase
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER as KEYSPACE
from delaylog.broker.engine.keyspace.keyspace_files import base_of
from delaylog.broker.engine.schedules.table import FOLDER as SCHEDULES
from delaylog.broker.engine.upkeep.saved_state import FAR
from delaylog.broker.host.audit.files import FOLDER as AUDIT
from delaylog.broker.verify.hours import Folder, HourCheck
from delaylog.broker.verify.living import count_living, groups_of
from delaylog.broker.verify.named_files import verify_far, verify_keyspace, verify_schedules
from delaylog.broker.verify.physical_log import LogRange, verify_log, verify_staged
from delaylog.broker.verify.report import Report
from delaylog.replication.errors import MetaDamagedError
from delaylog.replication.folder_owner import META, node_of
from delaylog.replication.meta import load_meta
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.folder.checkpoint import (
    NO_CHECKPOINT,
    Checkpoint,
    checkpoint_names,
    read_checkpoint,
)
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.hours.hour_counts import HourCounts
from delaylog.storage.ids.id_hash import IdHash
from delaylog.storage.layout import (
    HOUR_SHIFT,
    INDEX_MASK,
    TICK_SLOT_SIZE,
    TICK_SLOT_STRIDE,
    Int64Array,
    hour_name,
    hour_of_name,
)
from delaylog.storage.log.tick_slots import newest_slot, read_slots
from delaylog.storage.runs.run_store import INDEX, StoredRuns, open_runs, read_stored

T = TypeVar("T")
_KNOWN = frozenset(
    {"lock", "hold", "tick", "log", "hours", "ids", "texts", "ready", "reserve"}
    | {"crash", "backup.json", META, "vote", KEYSPACE, SCHEDULES, AUDIT, FIRST_ADMIN, HELD}
)


def verify_folder(
    fs: FileSystem, folder: str, report: Report | None = None
) -> Generator[str, None, Report]:
    """Check every checksum, chain, count and pointer.

    Yields the name of the part being checked, and returns the report. A caller that passes a report
    can read it while the check runs.
    """
    report = report or Report()
    for name in fs.listdir(folder):
        if name in (INCOMING, COPIED, PLACING):
            report.note(name, 0, "a copy of a leader's folder that is not in place yet")
        elif name == MARK or name.startswith(ASIDE):
            report.note(name, 0, "damaged data that a copy from another node replaces")
        elif name not in _KNOWN and not name.startswith("checkpoint-"):
            report.note(name, 0, "not a file of a data folder")
    checkpoints = _checkpoints(fs, folder, report)
    newest = checkpoints.newest
    after = newest.position
    durable_end = max(after, _ticks(fs, folder, report))
    node = _member(fs, folder, report)
    _order(fs, folder, report)
    log = yield from _labelled(
        "log", verify_log(fs, folder, report, after=after, durable_end=durable_end, node=node)
    )
    _reach([position for _, position in checkpoints.bases], log, report)
    yield from _hours(fs, folder, newest, log, report)
    yield from _labelled(KEYSPACE, verify_keyspace(fs, folder, checkpoints.bases, log, report))
    if newest is not NO_CHECKPOINT:
        schedules = verify_schedules(fs, folder, newest.members["schedules"], log, report)
        yield from _labelled(SCHEDULES, schedules)
    verify_staged(checkpoints.staged, log, report)
    yield from _indexes(fs, folder, after, report)
    return report


def _order(fs: FileSystem, folder: str, report: Report) -> None:
    """Verify the order to hold or to release the broker."""
    if fs.exists(f"{folder}/{HELD}"):
        report.files += 1
        try:
            read_order(fs, folder)
        except CorruptionError as error:
            report.damaged(HELD, 0, error.what)


def _member(fs: FileSystem, folder: str, report: Report) -> int:
    """The node of a cluster that the folder belongs to; 0 = no cluster."""
    if not fs.exists(f"{folder}/{META}"):
        return 0
    report.files += 1
    try:
        load_meta(fs, f"{folder}/{META}")
    except MetaDamagedError as error:
        # The node's promises are lost, so it must not vote before a leader adds it again.
        report.damaged(META, 0, f"{error}; the node rejoins as a learner")
    return node_of(fs, folder)


def _indexes(fs: FileSystem, folder: str, after: int, report: Report) -> Generator[str, None, None]:
    """Verify the indexes of ids and of texts; a damaged one is rebuilt from the rows.

    Ids of frames below `after`, the newest checkpoint's position, must be in their index. That of
    keys and tags may be incomplete: a node rebuilds it as it serves.
    """
    for name, what in (("ids", "the id index"), ("texts", "the index of keys and tags")):
        path, complete = f"{folder}/{name}", after if name == "ids" else 0
        if not fs.exists(f"{path}/{INDEX}"):
            # A backup has none.
            if complete and not fs.exists(f"{folder}/{MANIFEST}"):
                report.note(name, 0, "missing; a start rebuilds it")
            continue
        report.files += 1
        try:
            stored = read_stored(fs, path)
            if stored.position < complete:
                text = f"it is complete only up to {stored.position}"
                raise CorruptionError(text, path=f"{path}/{INDEX}", position=0)
            yield from _runs(fs, path, stored, report)
        except CorruptionError as error:
            place = error.path.removeprefix(f"{folder}/")
            report.damaged(place, error.position, f"{error.what}; a start rebuilds {what}")


def _runs(
    fs: FileSystem, path: str, stored: StoredRuns, report: Report
) -> Generator[str, None, None]:
    for run in open_runs(fs, path, stored):
        report.files += 1
        report.bytes_read += run.size
        for _ in run.check(fs):
            yield path.rpartition("/")[2]
        run.close()


def _labelled(label: str, work: Generator[None, None, T]) -> Generator[str, None, T]:
    """Run `work`, yielding `label` at each of its yields; return its result."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            found: T = stop.value
            return found
        yield label


@dataclass(slots=True)
class _Checkpoints:
    """The intact checkpoints, oldest first: the newest one, and what each needs of the log."""

    newest: Checkpoint = NO_CHECKPOINT
    bases: list[tuple[KeyspaceBase, int]] = field(default_factory=list)
    """The base of the keyspace of each, and its position."""
    staged: list[Mapping[str, Any]] = field(default_factory=list)
    """The transactions of each."""


def _checkpoints(fs: FileSystem, folder: str, report: Report) -> _Checkpoints:
    out = _Checkpoints()
    for name in checkpoint_names(fs, folder):
        report.files += 1
        found = read_checkpoint(fs, f"{folder}/{name}")
        if found is None:
            report.damaged(name, 0, "a damaged checkpoint")
            continue
        out.newest = found
        out.bases.append((base_of(found), found.position))
        out.staged.append(found.members["transactions"])
    return out


def _ticks(fs: FileSystem, folder: str, report: Report) -> int:
    """The durable end that the tick slots prove."""
    if not fs.exists(f"{folder}/tick"):
        return 0
    report.files += 1
    with closing(fs.open(f"{folder}/tick")) as file:
        raw = file.pread(file.size(), 0)
        slots = read_slots(file)
        newest, _ = newest_slot(file)
    for first, last in (
        (TICK_SLOT_SIZE, TICK_SLOT_STRIDE),
        (TICK_SLOT_STRIDE + TICK_SLOT_SIZE, len(raw)),
    ):
        if any(raw[first:last]):
            report.damaged("tick", first, "bytes in a gap that is never written")
    for slot, (content, found) in enumerate(slots):
        if found is None and any(content):
            report.damaged("tick", slot * TICK_SLOT_STRIDE, "a damaged slot; the other one is used")
    return 0 if newest is None else newest.durable_end


def _reach(positions: list[int], log: LogRange, report: Report) -> None:
    for position in positions:
        if not log.first <= position <= log.end:
            what = f"a checkpoint at {position} outside the log, which is [{log.first}, {log.end})"
            report.damaged("log", position, what)


def _is_old(fs: FileSystem, path: str, hour: int, newest: Checkpoint) -> bool:
    """Whether the rows of an hour's folder are those that the checkpoint counts."""
    with closing(DelayHour(fs, path, hour)) as files:
        return files.holds_rows_before(newest.position, newest.epoch)


def _hours(
    fs: FileSystem,
    folder: str,
    newest: Checkpoint,
    log: LogRange,
    report: Report,
) -> Generator[str, None, None]:
    counts, floor, table = newest.hours, newest.hour_floor_top, newest.table
    groups = groups_of(newest)
    if newest is not NO_CHECKPOINT:
        yield from _labelled(FAR, verify_far(fs, folder, newest.runs, report))
    place = f"{folder}/hours"
    present = {
        hour: name
        for name in (fs.listdir(place) if fs.exists(place) else [])
        if (hour := hour_of_name(name)) is not None
    }
    for name in fs.listdir(place) if fs.exists(place) else []:
        if hour_of_name(name) is None and name != "far":
            report.note(f"hours/{name}", 0, "not an hour's folder")

    def is_row(refs: Int64Array) -> np.ndarray:
        good = np.zeros(len(refs), np.bool_)
        hours, index = refs >> HOUR_SHIFT, refs & INDEX_MASK
        for hour in np.unique(hours).tolist():
            known = table.get(hour)
            # Frames behind the checkpoint may have added rows that it does not count, and ended
            # hours may have been removed while rows of other hours still refer to them.
            open_ended = log.changed or (known is None and hour < floor)
            most = 1 << 32 if open_ended else (known.rows if known is not None else 0)
            good |= (hours == hour) & (index >= 1) & (index <= most)
        return good

    within = Folder(fs, folder, report, IdHash(log.id_key or newest.id_key))
    for hour in sorted(set(present) | {h for h, c in counts.items() if c.rows}):
        name = f"hours/{present.get(hour, hour_name(hour))}"
        known = counts.get(hour, HourCounts())
        if known.rows and known.ended and not fs.exists(f"{folder}/{name}/delay.index"):
            report.note(name, 0, "an ended hour that was being removed")
            continue
        if known.rows and known.ended and not _is_old(fs, f"{folder}/{name}", hour, newest):
            # The hour was removed after the checkpoint; new rows came after the clock was set back.
            known = HourCounts()
        check = HourCheck(within, name, hour, known.rows, is_row)
        for _ in check.run():
            yield name
        # Frames behind the checkpoint may have changed the states since; then nothing is compared.
        living = known.rows + check.living
        if groups is not None and fs.exists(f"{folder}/{name}/delay.index"):
            living = yield from _labelled(
                name, count_living(fs, f"{folder}/{name}", known.rows, groups)
            )
        if not log.changed and known.rows and living != known.living:
            what = f"{living} rows are living, but the checkpoint counts {known.living}"
            report.damaged(f"{name}/state", 0, what)

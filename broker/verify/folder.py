"""Verify a whole data folder that no process serves, and the files that its checkpoints name.

Named files are the runs of far hours, the snapshots, and the files of schedules.

The living rows of an hour are counted by a checkpoint's topics, groups and floors. States alone are
not enough in two cases. If a topic has several groups, a row lives once for each group that must
see it. Rows below a group's floor have ended without a state that says so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeVar

import numpy as np

from delaylog.broker.backup.copies import MANIFEST
from delaylog.broker.calls.access.first_admin import FILE as FIRST_ADMIN
from delaylog.broker.cluster.copies.incoming_folder import ASIDE, COPIED, INCOMING, MARK, PLACING
from delaylog.broker.engine.hold import FILE as HELD
from delaylog.broker.engine.hold import read_order
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER as KEYSPACE
from delaylog.broker.engine.keyspace.keyspace_files import Reader, base_of, position_of_name
from delaylog.broker.engine.keyspace.keyspace_part import KeyspaceBase, is_missing, keyspace_part
from delaylog.broker.engine.schedules.columns import Column, Columns, RowsFile, read_rows
from delaylog.broker.engine.schedules.definitions import Definitions
from delaylog.broker.engine.schedules.schedule import Schedule
from delaylog.broker.engine.schedules.table import FOLDER as SCHEDULES
from delaylog.broker.engine.schedules.table import named_files
from delaylog.broker.engine.topics.groups import DEFAULT_GROUP, Group
from delaylog.broker.engine.upkeep.saved_state import FAR, fill_group
from delaylog.broker.host.watch.audit_files import FOLDER as AUDIT
from delaylog.broker.verify.hours import Folder, HourCheck
from delaylog.broker.verify.physical_log import LogRange, verify_log, verify_staged
from delaylog.broker.verify.report import Report
from delaylog.extras import REDIS, missing_part
from delaylog.replication.errors import MetaDamagedError
from delaylog.replication.meta import META, load_meta, node_of
from delaylog.storage.checkpoint import (
    KEPT,
    NO_CHECKPOINT,
    Checkpoint,
    FarRuns,
    checkpoint_names,
    read_checkpoint,
)
from delaylog.storage.columns import every, rising
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.hours.far.sorted_run import BLOCK_ROWS, RunFacts, SortedRun, run_size
from delaylog.storage.hours.hour_rewrite import path_of
from delaylog.storage.hours.hour_table import HourCounts
from delaylog.storage.hours.state_seal import broken
from delaylog.storage.layout import (
    HOUR_MS,
    HOUR_SHIFT,
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_MASK,
    STATE_ENDED_FIRST,
    STATE_ENTRY,
    STATE_ENTRY_SIZE,
    TICK_SLOT_SIZE,
    TICK_SLOT_STRIDE,
    Int64Array,
    RowArray,
    StateArray,
    group_of_name,
    hour_name,
    hour_of_name,
)
from delaylog.storage.log.frames import Frame
from delaylog.storage.log.tick_slots import newest_slot, read_slots
from delaylog.storage.runs.id_hash import IdHash
from delaylog.storage.runs.run_store import INDEX, StoredRuns, open_runs, read_stored

# ---------------------------------------------------------------------------------- living rows

_ROWS: Final = 65_536


def _no_run(_topic: int) -> NoReturn:
    raise AssertionError("no message becomes ready here")


def groups_of(checkpoint: Checkpoint) -> dict[int, list[Group]] | None:
    """Groups by topic number, or None if the states alone tell which rows are living."""
    members = checkpoint.members
    if checkpoint is NO_CHECKPOINT:
        return None
    out: dict[int, list[Group]] = {}
    plain = True
    for topic in members["topics"]:
        groups = out[topic["number"]] = []
        for saved in topic["groups"]:
            group = Group(saved["number"], saved["name"], _no_run)
            fill_group(group, saved)
            groups.append(group)
        plain &= topic["next_group"] == DEFAULT_GROUP + 1 and [g.floor for g in groups] == [0]
    # Rows of a dropped topic or group are living in no group, but have no state that says so.
    return None if plain and len(out) == members["next_topic"] - 1 else out


def count_living(
    fs: FileSystem, place: str, rows: int, groups: Mapping[int, list[Group]]
) -> Generator[None, None, int]:
    """Count the living rows among the first `rows` of an hour, once for each group."""
    living = 0
    index = fs.open(path_of(fs, place, "delay.index"))
    states: dict[int, File] = {}
    for name in fs.listdir(place):
        if (number := group_of_name(name)) is not None:
            states[number] = fs.open(f"{place}/{name}")
    try:
        for first in range(0, rows, _ROWS):
            count = min(_ROWS, rows - first)
            raw = index.pread(count * INDEX_ENTRY_SIZE, first * INDEX_ENTRY_SIZE)
            part = np.frombuffer(
                raw[: len(raw) // INDEX_ENTRY_SIZE * INDEX_ENTRY_SIZE], INDEX_ENTRY
            )
            for number in np.unique(part["topic"]).tolist():
                mine = part["topic"] == number
                for group in groups.get(number, ()):
                    entries = _entries(states.get(group.number), first, len(part))[mine]
                    alive = group.has(part[mine]) & ~group.purged(part[mine], entries)
                    alive &= entries["state"] < STATE_ENDED_FIRST
                    living += int(np.count_nonzero(alive))
            yield
    finally:
        for file in (index, *states.values()):
            file.close()
    return living


def _entries(file: File | None, first: int, count: int) -> StateArray:
    """States of rows; a missing or short file reads as zeros."""
    size = count * STATE_ENTRY_SIZE
    raw = b"" if file is None else file.pread(size, first * STATE_ENTRY_SIZE)
    return np.frombuffer(raw.ljust(size, b"\0"), STATE_ENTRY)


# ------------------------------------------------------------------ files that checkpoints name

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


# ----------------------------------------------------------------------------------- the folder

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
        "log",
        verify_log(
            fs,
            folder,
            report,
            after=after,
            needed=checkpoints.needed,
            durable_end=durable_end,
            node=node,
        ),
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
    log_from: list[int] = field(default_factory=list)
    """The first position of the log that a start from each reads."""

    @property
    def needed(self) -> int:
        """Log before this position may have been removed: only once all kept checkpoints exist."""
        return min(self.log_from) if len(self.log_from) == KEPT else 0


def _checkpoints(fs: FileSystem, folder: str, report: Report) -> _Checkpoints:
    out = _Checkpoints()
    names = checkpoint_names(fs, folder)
    for name in names[:-KEPT]:
        # What it names may be gone: a power cut may undo the removal of the checkpoint alone.
        report.files += 1
        report.note(name, 0, "an old checkpoint, which the next one removes")
    for name in names[-KEPT:]:
        report.files += 1
        found = read_checkpoint(fs, f"{folder}/{name}")
        if found is None:
            report.damaged(name, 0, "a damaged checkpoint")
            continue
        out.newest = found
        out.bases.append((base_of(found), found.position))
        out.log_from.append(found.log_from)
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

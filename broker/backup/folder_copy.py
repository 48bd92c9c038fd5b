"""`delaylog backup`: a consistent copy of a data folder that a broker may be serving.

The order makes it consistent. First comes the newest checkpoint, then the rows that it counts,
which never change, and the states, which are written in place but never ahead of the durable log.
The log comes last, up to an end behind every state that was read. Recovery then does the same as
after a kill: it cuts the files to the checkpoint's counts and replays the log. A backup gets its
name only when all of it is durable.

Rows of an hour are copied up to the checkpoint's count and checked against the extents. All other
files of an hour are written in place. Their copies may be newer than the checkpoint, and torn:
every entry that has changed since has a frame behind the checkpoint, which the replay applies
again. Compaction may replace the files of rows while they are opened here. Some are then old and
others new, so their checksums do not match, and the copy begins again.

The copy of the log ends with a whole frame, at or behind the end that the log had when this copy
began. So it has the frame of every state entry that was copied before.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from delaylog.broker.backup.copies import (
    MANIFEST,
    BackupError,
    FileEntry,
    Manifest,
    Progress,
    Route,
    Target,
    files_below,
    is_backup_file,
    is_inside,
)
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER as KEYSPACE
from delaylog.broker.engine.schedules.table import FOLDER as SCHEDULES
from delaylog.broker.engine.upkeep.saved_state import FAR, files_of
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.system.folder_lock import LOCK, note_backup, suspended_retention
from delaylog.replication.meta import cluster_of, node_of
from delaylog.storage.checkpoint import (
    NO_CHECKPOINT,
    Checkpoint,
    checkpoint_names,
    decode_checkpoint,
)
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import (
    FILE_MODE,
    File,
    FileSystem,
    make_folder,
    parent_of,
    read_file,
    size_of,
)
from delaylog.storage.hours.extents import extents_upto, read_extents
from delaylog.storage.hours.hour_rewrite import is_replacing, path_of
from delaylog.storage.hours.hour_table import HourCounts
from delaylog.storage.layout import (
    EPOCH_NODE_BITS,
    EXTENT_HOLE,
    EXTENT_SIZE,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    STATE_ENTRY_SIZE,
    RowArray,
    group_of_name,
    hour_name,
)
from delaylog.storage.log.frames import Frame, Tick
from delaylog.storage.log.log_reader import (
    Durable,
    judge_tail,
    scan_segment,
    segment_bases,
    segment_name,
)
from delaylog.storage.log.tick_slots import TickRecord, encode_slot, newest_slot

# ------------------------------------------------------------------------------- one delay hour

_INDEX: Final = "delay.index"
_EXTENTS: Final = "extents"
_ROW_FILES: Final = frozenset({_INDEX, "delay.log", _EXTENTS})
_CACHES: Final = frozenset({"second.index"})
"""Files that are rebuilt from the rows if they are missing."""


class Vanished(Exception):
    """A file that the checkpoint needs was removed or replaced before it was copied."""


class HourCopy:
    """Copies one hour. `place` is its folder relative to the data folder and to the backup."""

    def __init__(self, route: Route[Target], place: str, rows: int) -> None:
        self._route = route
        self._place = place
        self._rows = rows
        self._files: dict[str, File] = {}
        self._open()

    def _open(self) -> None:
        """Open every file, the index last: a removal deletes it before most other files.

        The extents come first: a replacement renames them after records and rows, so new extents
        are never opened with old rows. Raises Vanished if the hour was removed.
        """
        path, source = f"{self._route.folder}/{self._place}", self._route.source
        self._replacing = is_replacing(source, path)
        try:
            names = source.listdir(path)
            for name in sorted(names, key=lambda name: (name == _INDEX, name != _EXTENTS)):
                if name not in _CACHES and not name.endswith(".tmp"):
                    self._files[name] = _open_present(source, path, name)
            if _INDEX not in names:
                raise Vanished(path)
        except FileNotFoundError:
            self.close()
            raise Vanished(path) from None
        except Vanished:
            self.close()
            raise

    def close(self) -> None:
        """Close every file."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def copy(self, progress: Progress) -> list[FileEntry]:
        """Copy all files. Raises CorruptionError if rows or records are damaged, and Vanished if
        compaction has replaced files since the first one was opened.
        """
        try:
            return self._copy(progress)
        except CorruptionError as error:
            if self._replaced():
                raise Vanished(error.path) from None
            raise

    def _replaced(self) -> bool:
        """Whether compaction has begun or ended to replace files since the first one was opened."""
        path, source = f"{self._route.folder}/{self._place}", self._route.source
        if is_replacing(source, path) != self._replacing:
            return True
        mine = self._file(_EXTENTS)
        try:
            with closing(_open_present(source, path, _EXTENTS)) as present:
                size = mine.size()
                return present.size() < size or present.pread(size, 0) != mine.pread(size, 0)
        except FileNotFoundError:
            # The hour was removed; another attempt says whether it was still needed.
            return True

    def _copy(self, progress: Progress) -> list[FileEntry]:
        place = f"{self._route.dest}/{self._place}"
        self._route.target.mkdir(place)
        extents = self._extents()
        parts: dict[str, list[tuple[int, int, int | None]]] = {
            _EXTENTS: [(0, len(extents) * EXTENT_SIZE, None)],
            _INDEX: [
                (
                    (int(extent["first_index"]) - 1) * INDEX_ENTRY_SIZE,
                    int(extent["count"]) * INDEX_ENTRY_SIZE,
                    None if extent["flags"] & EXTENT_HOLE else int(extent["index_crc"]),
                )
                for extent in extents
            ],
            "delay.log": [
                (int(extent["log_offset"]), int(extent["log_size"]), int(extent["log_crc"]))
                for extent in extents
            ],
        }
        entries = []
        for name, ranges in parts.items():
            with closing(self._route.begin(f"{self._place}/{name}", progress)) as copied:
                for start, size, crc in ranges:
                    if copied.copy(self._file(name), start, size) != crc and crc is not None:
                        raise self._damaged(
                            name, start, f"{size} bytes do not match their checksum"
                        )
                entries.append(copied.finish())
        names = sorted(set(self._files) - _ROW_FILES)
        entries += [self._copy_later(name, progress) for name in names]
        self._route.target.sync_folder(place)
        return entries

    def _copy_later(self, name: str, progress: Progress) -> FileEntry:
        """Copy a file that is written in place; of a state file, only entries of counted rows."""
        file = self._files[name]
        whole = size = file.size()
        if group_of_name(name) is not None:
            size = min(size, self._rows * STATE_ENTRY_SIZE)
        with closing(self._route.begin(f"{self._place}/{name}", progress)) as copied:
            copied.copy(file, 0, size)
            # State files are mapped in whole pieces, so the copy must have the full length.
            return copied.finish(whole - size)

    def _file(self, name: str) -> File:
        if name not in self._files:
            raise self._damaged(name, 0, "missing")
        return self._files[name]

    def _damaged(self, name: str, position: int, what: str) -> CorruptionError:
        path = f"{self._route.folder}/{self._place}/{name}"
        return CorruptionError("damage", path=path, position=position, detail=what)

    def _extents(self) -> RowArray:
        """The extents of the counted rows, verified and checked for gaps."""
        file, path = self._file(_EXTENTS), f"{self._route.folder}/{self._place}/{_EXTENTS}"
        _, count = extents_upto(file, path, self._rows)
        extents = read_extents(file, count, path)
        if not extents[-1]["flags"]:
            self._check_last_row(int(extents["log_size"].sum()))
        return extents

    def _check_last_row(self, log_end: int) -> None:
        at = (self._rows - 1) * INDEX_ENTRY_SIZE
        raw = self._file(_INDEX).pread(INDEX_ENTRY_SIZE, at)
        if len(raw) < INDEX_ENTRY_SIZE:
            raise self._damaged(_INDEX, at, f"rows are missing; {self._rows} were durable")
        row = np.frombuffer(raw, INDEX_ENTRY)[0]
        if int(row["offset"]) + int(row["size"]) != log_end:
            raise self._damaged(_INDEX, at, "the last row does not end where the extents end")


def _open_present(source: FileSystem, folder: str, name: str) -> File:
    """Open the file that a start would use."""
    while True:
        path = path_of(source, folder, name)
        try:
            return source.open(path)
        except FileNotFoundError:
            if path == f"{folder}/{name}":
                raise
            # The new file has got its name since `path_of` found it.


def bytes_of_hour(source: FileSystem, folder: str, place: str, rows: int) -> int:
    """Estimate of the bytes that `HourCopy` will copy, for progress; 0 for a removed hour."""
    total = 0
    try:
        for name in source.listdir(f"{folder}/{place}"):
            if name not in _CACHES:
                size = size_of(source, f"{folder}/{place}/{name}")
                total += (
                    min(size, rows * STATE_ENTRY_SIZE) if group_of_name(name) is not None else size
                )
    except FileNotFoundError:
        return 0
    return total


# -------------------------------------------------------------------------------------- the log

LOOKS: Final = 40
LOOK_SECONDS: Final = 0.05
"""How often, and at which interval, an incomplete frame is read again before it counts as a torn
tail. A running broker completes any frame within these two seconds."""


@dataclass(slots=True)
class LogTail:
    """The frames that were copied."""

    end: int
    goal: int
    """The end of the log when the copy began."""
    epoch: int = 0
    """Greatest epoch of the frames (counter and node); 0 without frames."""
    tick: Tick | None = None
    """The tick of the last frame."""
    frames: int = 0
    entries: list[FileEntry] = field(default_factory=list)

    def take(self, frame: Frame) -> None:
        """Count a frame and move past it."""
        header = frame.header
        self.end = frame.end
        self.epoch = max(self.epoch, header.epoch)
        self.tick = Tick(header.tick_second, header.tick_local_index, header.tick_position)
        self.frames += 1


def log_size_from(source: FileSystem, folder: str, position: int) -> int:
    """Bytes of the log from `position` on, for progress."""
    log = f"{folder}/log"
    bases = segment_bases(source, log)
    return max(_end(source, log, bases) - position, 0)


def copy_log(
    route: Route[Target],
    *,
    position: int,
    durable: Durable,
    progress: Progress,
    sleep: Callable[[float], None],
) -> LogTail:
    """Copy all frames from `position` on.

    Raises CorruptionError for a bad frame that was durable: below `durable`, or as a later frame of
    the same node proves. Raises Vanished if a segment that is needed was removed.
    """
    source, log = route.source, f"{route.folder}/log"
    route.target.mkdir(f"{route.dest}/log")
    bases = segment_bases(source, log)
    if not bases or bases[0] > position:
        raise Vanished(f"the segment of position {position}")
    tail = LogTail(position, goal=_end(source, log, bases))
    base = max(base for base in bases if base <= position)
    while True:
        # The first segment of a backup begins at the position from which frames are needed.
        first = max(base, position)
        with (
            closing(_open(source, log, base)) as file,
            closing(route.begin(f"log/{segment_name(first)}", progress)) as copied,
        ):
            following = _scan(route, file, base, tail, durable, sleep)
            copied.copy(file, first - base, tail.end - first)
            tail.entries.append(copied.finish())
        if following is None:
            break
        base = following
    route.target.sync_folder(f"{route.dest}/log")
    return tail


def _open(source: FileSystem, log: str, base: int) -> File:
    try:
        return source.open(f"{log}/{segment_name(base)}")
    except FileNotFoundError:
        raise Vanished(segment_name(base)) from None


def _end(source: FileSystem, log: str, bases: Sequence[int]) -> int:
    if not bases:
        return 0
    with closing(_open(source, log, bases[-1])) as file:
        return bases[-1] + file.size()


def _scan(
    route: Route[Target],
    file: File,
    base: int,
    tail: LogTail,
    durable: Durable,
    sleep: Callable[[float], None],
) -> int | None:
    """Copy the whole frames of one segment; return the next base, or None at the log's end."""
    source, log = route.source, f"{route.folder}/log"
    looks = 0
    while True:
        before = tail.end
        for frame in scan_segment(file, base, tail.end):
            tail.take(frame)
        if tail.end >= tail.goal:
            return None
        later = [other for other in segment_bases(source, log) if other > base]
        if later and later[0] == tail.end:
            return later[0]
        # Either the broker is writing here just now, or the log is torn.
        looks = 0 if tail.end > before else looks + 1
        if looks == LOOKS:
            what = "a bad frame" if tail.end < base + file.size() else "a gap between segments"
            judge_tail(source, log, [base, *later], what, tail.end, durable)
            return None
        sleep(LOOK_SECONDS)


# ----------------------------------------------------------------------------------- the folder

_NAMED: Final = {KEYSPACE: "a snapshot", FAR: "a run", SCHEDULES: "a file of schedules"}
"""What the files are that a checkpoint names, by folder."""
TRIES: Final = 5
"""Most attempts of a backup. It begins again if files that it needs were removed: a broker keeps
them for a backup, unless it runs out of disk space."""


@dataclass(frozen=True, slots=True)
class Start:
    """The checkpoint that a backup begins with; without one, it begins at the start of the log."""

    name: str | None
    raw: bytes
    checkpoint: Checkpoint


def take_backup(
    route: Route[FileSystem],
    *,
    version: str,
    now_ms: Callable[[], int],
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Manifest:
    """Copy a data folder, served or not, to a new folder.

    `progress` is called with the file being copied, the bytes copied, and an estimate of all bytes.
    Raises ConfigError for unsuitable folders, BackupError if the broker removes files before they
    are copied, and StorageError for damage, full disks and disks that fail.
    """
    source, target = route.source, route.target
    data_dir, dest = route.folder.rstrip("/") or "/", route.dest.rstrip("/") or "/"
    _check_places(data_dir, dest)
    manifest = Manifest(
        version,
        os.path.realpath(data_dir),
        began_at_ms=now_ms(),
        cluster=cluster_of(source, data_dir).hex(),
    )
    with suspended_retention(data_dir), _partial_folder(dest) as partial:
        for last in [False] * (TRIES - 1) + [True]:
            copy = FolderCopy(Route(source, data_dir, target, partial), progress, sleep)
            try:
                copy.run(manifest)
                break
            except Vanished as error:
                if last:
                    raise BackupError(
                        f"{error} was removed before it was copied, in {TRIES} attempts: the "
                        "broker removes files when its disk is nearly full; free some space and "
                        "try again"
                    ) from None
                _empty(partial)
        manifest.ended_at_ms = now_ms()
        write_manifest(target, partial, manifest)
        if os.path.lexists(dest):
            raise ConfigError(f"{dest} was created while the backup was taken; it is not changed")
        target.rename(partial, dest)
        target.sync_folder(parent_of(dest))
        note_backup(data_dir, manifest.ended_at_ms)
    return manifest


def _check_places(data_dir: str, dest: str) -> None:
    if not os.path.isdir(f"{data_dir}/log"):
        raise ConfigError(f"{data_dir} is not a data folder: it has no log")
    if os.path.lexists(dest):
        raise ConfigError(f"{dest} exists: name a folder that does not exist")
    if not os.path.isdir(parent_of(dest)):
        raise ConfigError(f"{parent_of(dest)} is not a folder: create it first")
    if is_inside(parent_of(dest), data_dir):
        raise ConfigError(f"{dest} is inside the data folder: name a folder outside it")


@contextmanager
def _partial_folder(dest: str) -> Iterator[str]:
    """An empty, locked folder DEST.partial, which is removed after an error."""
    partial = f"{dest}.partial"
    try:
        make_folder(partial)
        _check_ours(partial)
        fd = os.open(f"{partial}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise ConfigError(f"{partial} cannot be used: {error.strerror}") from None
    ours = False
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"{partial} is being written by another backup") from None
        ours = True
        _empty(partial)
        yield partial
    except BaseException:
        if ours:
            shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(fd)


def _check_ours(partial: str) -> None:
    for name in files_below(partial):
        if name not in (LOCK, MANIFEST) and not is_backup_file(name):
            raise ConfigError(
                f"{partial} has {name!r}, which is not a file of a backup: move it away first"
            )


def _empty(partial: str) -> None:
    for entry in os.scandir(partial):
        if entry.name == LOCK:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def write_manifest(target: Target, partial: str, manifest: Manifest) -> None:
    """Write the manifest, the last file of a backup: without it the backup is not valid."""
    with closing(target.open(f"{partial}/{MANIFEST}", create=True)) as file:
        file.pwritev([manifest.encode()], 0)
        file.fdatasync()
    target.sync_folder(partial)


class FolderCopy:
    """One attempt to copy a data folder."""

    def __init__(
        self,
        route: Route[Target],
        progress: Callable[[str, int, int], None],
        sleep: Callable[[float], None],
    ) -> None:
        self._route = route
        self._source, self._folder = route.source, route.folder
        self._target, self._partial = route.target, route.dest
        self._report = progress
        self._sleep = sleep
        self._done = self._total = 0

    def run(self, manifest: Manifest) -> None:
        """Copy everything and fill the manifest. Raises Vanished when a new attempt is needed."""
        start = self._start()
        checkpoint, named = start.checkpoint, files_of(start.checkpoint)
        hours = self._present(start)
        places = {hour: f"hours/{hour_name(hour)}" for hour in sorted(hours)}
        self._total = log_size_from(self._source, self._folder, checkpoint.log_from) + sum(
            bytes_of_hour(self._source, self._folder, place, hours[hour].rows)
            for hour, place in places.items()
        )
        self._total += sum(size for sizes in named.values() for size in sizes.values())
        entries: list[FileEntry] = []
        rows = copied = 0
        self._target.mkdir(f"{self._partial}/hours")
        for folder, sizes in named.items():
            if sizes:
                entries += self._copy_named(start, folder, sizes)
        for hour, place in places.items():
            found = self._copy_hour(start, place, hours[hour])
            if found is not None:
                entries += found
                rows, copied = rows + hours[hour].rows, copied + 1
        far = checkpoint.table
        rows, copied = rows + far.far_rows, copied + len(far.far_hours())
        self._target.sync_folder(f"{self._partial}/hours")
        tick, durable_end = self._tick()
        log = copy_log(
            self._route,
            position=checkpoint.log_from,
            durable=Durable(
                max(durable_end, checkpoint.position), node_of(self._source, self._folder)
            ),
            progress=self._progress,
            sleep=self._sleep,
        )
        epoch = max(log.epoch, checkpoint.epoch << EPOCH_NODE_BITS)
        # The copied log is durable up to its end. The broker's own slots may name a later one.
        ended = TickRecord(epoch, log.tick or tick, log.end, manifest.began_at_ms)
        entries += [*log.entries, self._write("tick", encode_slot(ended, sequence=2))]
        if start.name is not None:
            entries.append(self._write(start.name, start.raw))
        manifest.position, manifest.end_position = checkpoint.position, log.end
        manifest.hours, manifest.rows, manifest.frames = copied, rows, log.frames
        manifest.files = entries

    def _progress(self, what: str, size: int) -> None:
        self._done += size
        self._total = max(self._total, self._done)
        self._report(what, self._done, self._total)

    # ------------------------------------------------------------------ where it begins

    def _start(self) -> Start:
        """Copy the newest intact checkpoint at once, since a broker keeps only two."""
        names = checkpoint_names(self._source, self._folder)
        for name in reversed(names):
            try:
                raw = read_file(self._source, f"{self._folder}/{name}")
            except FileNotFoundError:
                raise Vanished(name) from None
            found = decode_checkpoint(raw)
            if found is not None:
                return Start(name, raw, found)
        if names:
            path = f"{self._folder}/{names[-1]}"
            raise CorruptionError("no checkpoint can be read", path=path, position=0)
        return Start(None, b"", NO_CHECKPOINT)

    def _present(self, start: Start) -> dict[int, HourCounts]:
        """The hours of the checkpoint, without ended ones that were removed already.

        Retention removes ended hours right after a checkpoint. This is checked at the beginning:
        during a long backup newer checkpoints replace this one.
        """
        hours = {hour: counts for hour, counts in start.checkpoint.hours.items() if counts.rows}
        there = {
            hour: self._source.exists(f"{self._folder}/hours/{hour_name(hour)}/delay.index")
            for hour in hours
        }
        if not all(there.values()) and not self._still_kept(start):
            raise Vanished(start.name)
        return {hour: counts for hour, counts in hours.items() if there[hour] or not counts.ended}

    def _still_kept(self, start: Start) -> bool:
        """Whether the checkpoint is one of the newest two, so that nothing it needs was removed.

        Retention removes only files that neither of the two newest checkpoints needs. So an hour
        that was removed while this one is kept had ended by its counts.
        """
        return start.name is None or self._source.exists(f"{self._folder}/{start.name}")

    # ------------------------------------------------------------------ parts

    def _copy_hour(self, start: Start, place: str, counts: HourCounts) -> list[FileEntry] | None:
        """Copy an hour; return None if it had ended and was removed."""
        try:
            hour = HourCopy(self._route, place, counts.rows)
        except Vanished:
            if not self._still_kept(start):
                raise
            if counts.ended:
                return None
            raise CorruptionError(
                "rows are missing",
                path=f"{self._folder}/{place}/delay.index",
                position=0,
                detail=f"{counts.rows} rows were durable",
            ) from None
        with closing(hour):
            return hour.copy(self._progress)

    def _copy_named(self, start: Start, folder: str, sizes: Mapping[str, int]) -> list[FileEntry]:
        """Copy files that the checkpoint names; one of schedules may have grown since."""
        self._target.mkdir(f"{self._partial}/{folder}")
        entries = []
        for name, size in sizes.items():
            path = f"{folder}/{name}"
            try:
                file = self._source.open(f"{self._folder}/{path}")
            except FileNotFoundError:
                if not self._still_kept(start):
                    raise Vanished(path) from None
                raise CorruptionError(
                    f"{_NAMED[folder]} is missing", path=f"{self._folder}/{path}", position=0
                ) from None
            with closing(file), closing(self._route.begin(path, self._progress)) as copied:
                copied.copy(file, 0, size)
                entries.append(copied.finish())
        self._target.sync_folder(f"{self._partial}/{folder}")
        return entries

    def _tick(self) -> tuple[Tick, int]:
        """(tick, durable end) of the newest slot."""
        path = f"{self._folder}/tick"
        if not self._source.exists(path):
            return Tick(), 0
        with closing(self._source.open(path)) as file:
            record, _ = newest_slot(file)
        return (Tick(), 0) if record is None else (record.tick, record.durable_end)

    def _write(self, name: str, raw: bytes) -> FileEntry:
        with closing(self._route.begin(name, self._progress)) as copied:
            copied.append(raw)
            return copied.finish()

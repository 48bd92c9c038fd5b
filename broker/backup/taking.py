"""`delaylog backup`: a consistent copy of a data folder that a broker may be serving.

The order makes it consistent. First comes the newest checkpoint, then the rows that it counts,
which never change, and the states, which are written in place but never ahead of the durable log.
The log comes last, up to an end behind every state that was read. Recovery then does the same as
after a kill: it cuts the files to the checkpoint's counts and replays the log. A backup gets its
name only when all of it is durable.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final

from delaylog.broker.backup.copying import Route, Target
from delaylog.broker.backup.hours import HourCopy, Vanished, bytes_of_hour
from delaylog.broker.backup.log_tail import copy_log, log_size_from
from delaylog.broker.backup.manifest import MANIFEST, BackupError, FileEntry, Manifest
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER as KEYSPACE
from delaylog.broker.engine.schedules.table import FOLDER as SCHEDULES
from delaylog.broker.engine.upkeep.saved_state import FAR, files_of
from delaylog.broker.host.settings.options import ConfigError
from delaylog.broker.host.system.folder_lock import LOCK, note_backup, suspended_retention
from delaylog.replication.folder_owner import cluster_of, node_of
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FILE_MODE, FileSystem, make_folder, parent_of
from delaylog.storage.files.whole_files import read_file
from delaylog.storage.folder.checkpoint import (
    NO_CHECKPOINT,
    Checkpoint,
    checkpoint_names,
    decode_checkpoint,
)
from delaylog.storage.hours.hour_counts import HourCounts
from delaylog.storage.layout import EPOCH_NODE_BITS, hour_name
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.log_reader import Durable
from delaylog.storage.log.tick_slots import TickRecord, encode_slot, newest_slot

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
    inside = os.path.realpath(parent_of(dest)) + "/"
    if inside.startswith(os.path.realpath(data_dir).rstrip("/") + "/"):
        raise ConfigError(f"{dest} is inside the data folder: name a folder outside it")


@contextmanager
def _partial_folder(dest: str) -> Iterator[str]:
    """An empty, locked folder DEST.partial, which is removed after an error."""
    partial = f"{dest}.partial"
    try:
        make_folder(partial)
        fd = os.open(f"{partial}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise ConfigError(f"{partial} cannot be used: {error.strerror}") from None
    ours = False
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"{partial} is being written by another backup") from None
        _check_ours(partial)
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
    known = {LOCK, "log", "hours", KEYSPACE, SCHEDULES, "tick", MANIFEST}
    for name in os.listdir(partial):
        if name not in known and not name.startswith("checkpoint-"):
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

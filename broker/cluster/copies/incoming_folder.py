"""The folder that a copy is written to, and how it replaces the node's data; limits of copies.

    incoming/   being written; removed at the next start
    copied/     complete, checked and durable; the old data is being removed
    placing/    the old data is removed; the copy's files are being moved into place

Each step is idempotent, so a kill at any moment leaves either the old data, or a copy that
`install` finishes at the next start. `meta` and `vote` are not part of a copy: promises are kept.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from delaylog.broker.backup.copies import (
    MANIFEST,
    PART_BYTES,
    BackupError,
    FileEntry,
    Manifest,
    is_backup_file,
    read_manifest,
)
from delaylog.broker.engine.hold import FILE as HELD
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER as KEYSPACE
from delaylog.broker.engine.schedules.table import FOLDER as SCHEDULES
from delaylog.replication.wire import PIECE_BYTES_MAX
from delaylog.storage.files.file_system import File, FileSystem, parent_of
from delaylog.storage.layout import TICK_SLOT_SIZE
from delaylog.storage.log.tick_slots import TickRecord, encode_slot

# ----------------------------------------------------------------------------- limits of copies

SYNC_BYTES: Final = 32 << 20
"""Bytes between two syncs of the receiver, so that its disk never has gigabytes to write back."""


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """Seconds and bytes; tests use other values, for which the relations below must hold."""

    window_bytes: int = 2 << 20
    """Sent and not written by the receiver yet. Messages of replication to that node queue behind
    it: some 20 ms at 1 Gbit/s."""
    stall_seconds: float = 60.0
    """A copy without progress for this long is given up, as files and log are kept for it."""
    install_seconds: float = 600.0
    """How long log is kept for a node that has a whole copy and rebuilds its id index."""
    pause_seconds: float = 2.0
    """Between a copy that failed and the next offer."""
    pause_seconds_max: float = 60.0
    """The pause doubles up to this while the receiver gives up: its disk may be too small."""

    def __post_init__(self) -> None:
        assert PART_BYTES <= PIECE_BYTES_MAX, "a part of a file fits one message"
        assert self.window_bytes >= 2 * PART_BYTES, "one is written while the next is under way"


# ------------------------------------------------------------------------- the folder of a copy

INCOMING: Final = "incoming"
COPIED: Final = "copied"
PLACING: Final = "placing"
MARK: Final = "damaged"
"""A file that records the damage that a node found while it served."""
ASIDE: Final = "damaged-"
"""Prefix of the folders with data that was set aside."""
FOLDERS: Final = ("log", "hours", KEYSPACE, SCHEDULES, "ids", "texts", "ready")
"""The parts of a data folder that are its log, or derived from it."""
TICK: Final = "tick"
CHECKPOINT: Final = "checkpoint-"


def contents_of(fs: FileSystem, folder: str) -> list[str]:
    """Names in a data folder that are the cluster's data; promises are not."""
    return [
        name
        for name in fs.listdir(folder)
        if name in FOLDERS or name in (TICK, HELD) or name.startswith(CHECKPOINT)
    ]


def copy_unfinished(folder: str) -> bool:
    """Whether a copy has begun to replace the data of this folder."""
    return any(os.path.lexists(f"{folder}/{name}") for name in (COPIED, PLACING))


class IncomingFolder:
    """A copy that is being written inside a data folder. Its methods block on the disk."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self._fs = fs
        self._folder = folder
        self._path = f"{folder}/{INCOMING}"
        self._file: File | None = None
        self._name = ""
        self._names: set[str] = set()
        self._unsynced = 0

    def begin(self) -> None:
        """Make an empty folder."""
        self.remove()
        self._fs.mkdir(f"{self._path}/log")
        self._fs.mkdir(f"{self._path}/hours")
        self._fs.sync_folder(self._folder)

    def remove(self) -> None:
        """Remove everything that was written."""
        self.close()
        self._names.clear()
        if self._fs.exists(self._path):
            self._fs.remove_tree(self._path)

    def close(self) -> None:
        """Close the file that is being written."""
        if self._file is not None:
            self._file.close()
        self._file, self._name = None, ""

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Write bytes of one file. Raises BackupError for a name that no copy has."""
        file = self._open(name)
        file.pwritev([data], offset)
        self._unsynced += len(data)
        if self._unsynced >= SYNC_BYTES:
            self._unsynced = 0
            file.fdatasync()

    def _open(self, name: str) -> File:
        if self._file is not None and self._name == name:
            return self._file
        if name != MANIFEST and not is_backup_file(name):
            raise BackupError(f"a copy cannot contain {name!r}")
        self.close()
        path = f"{self._path}/{name}"
        self._fs.mkdir(parent_of(path))
        self._file, self._name = self._fs.open(path, create=True), name
        self._names.add(name)
        return self._file

    def finish(self) -> Manifest:
        """Check every file of the complete copy and make it durable. Raises BackupError."""
        self.close()
        manifest = read_manifest(self._fs, self._path)
        strange = self._names - {entry.path for entry in manifest.files} - {MANIFEST}
        if strange:
            raise BackupError(
                f"the copy contains {min(strange)!r}, which its manifest does not name"
            )
        for entry in manifest.files:
            self._check(entry)
        for name in self._fs.listdir(f"{self._path}/hours"):
            self._fs.sync_folder(f"{self._path}/hours/{name}")
        for name in ("hours", "log", KEYSPACE, SCHEDULES):
            if self._fs.exists(f"{self._path}/{name}"):
                self._fs.sync_folder(f"{self._path}/{name}")
        self._fs.sync_folder(self._path)
        return manifest

    def _check(self, entry: FileEntry) -> None:
        file = self._open(entry.path)
        file.truncate(entry.size + entry.hole)
        file.fdatasync()
        crc = at = 0
        while at < entry.size:
            part = file.pread(min(PART_BYTES, entry.size - at), at)
            crc = crc32c(part, crc)
            at += len(part)
        if crc != entry.crc32c:
            raise BackupError(
                f"{entry.path} of the copy differs from the bytes that the leader read"
            )
        self.close()

    def keep(self, tick: TickRecord) -> None:
        """Commit to the copy: from here on `install` finishes the replacement.

        `tick` is the node's own newest tick, with the end of the copy's log as its durable end.
        """
        assert self._file is None, "it is finished"
        path = f"{self._path}/{TICK}"
        if self._fs.exists(path):
            self._fs.unlink(path)
        with closing(self._fs.open(path, create=True)) as file:
            slot = encode_slot(tick, sequence=2)
            assert len(slot) == TICK_SLOT_SIZE, "the first of two slots"
            file.pwritev([slot], 0)
            file.fdatasync()
        self._fs.unlink(f"{self._path}/{MANIFEST}")
        self._fs.sync_folder(self._path)
        self._fs.rename(self._path, f"{self._folder}/{COPIED}")
        self._fs.sync_folder(self._folder)


def install(fs: FileSystem, folder: str) -> bool:
    """Finish the replacement by a complete copy, and remove an incomplete one. Returns whether the
    data was replaced. No file of the folder may be open.
    """
    if fs.exists(f"{folder}/{INCOMING}"):
        fs.remove_tree(f"{folder}/{INCOMING}")
    found = False
    if fs.exists(f"{folder}/{COPIED}"):
        found = True
        for name in contents_of(fs, folder):
            if name in FOLDERS:
                fs.remove_tree(f"{folder}/{name}")
            else:
                fs.unlink(f"{folder}/{name}")
        fs.sync_folder(folder)
        fs.rename(f"{folder}/{COPIED}", f"{folder}/{PLACING}")
        fs.sync_folder(folder)
    if fs.exists(f"{folder}/{PLACING}"):
        found = True
        for name in fs.listdir(f"{folder}/{PLACING}"):
            fs.rename(f"{folder}/{PLACING}/{name}", f"{folder}/{name}")
        fs.sync_folder(folder)
        fs.sync_folder(f"{folder}/{PLACING}")
        fs.remove_tree(f"{folder}/{PLACING}")
        fs.sync_folder(folder)
    return found

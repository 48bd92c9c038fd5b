"""The folder that a copy is written to, and how it takes the place of what the node held.

    incoming/   being written: worth nothing, removed at a start
    copied/     all there, checked, durable: what the node held is being removed
    placing/    what the node held is gone: the copy's files are being moved out

Each step can be done again, so a kill at any moment leaves the old folder, or a copy that
`install` finishes at the next start. `meta` and `vote` are not part of it: promises stand.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import Final

from crc32c import crc32c

from delaylog.broker.backup.copying import PART_BYTES
from delaylog.broker.backup.manifest import (
    MANIFEST,
    BackupError,
    FileEntry,
    Manifest,
    is_backup_file,
    read_manifest,
)
from delaylog.broker.cluster.copies.limits import SYNC_BYTES
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER as KEYSPACE
from delaylog.storage.files.file_system import File, FileSystem, parent_of
from delaylog.storage.layout import TICK_SLOT_SIZE
from delaylog.storage.log.tick_slots import TickRecord, encode_slot

INCOMING: Final = "incoming"
COPIED: Final = "copied"
PLACING: Final = "placing"
MARK: Final = "damaged"
"""A file that says what damage a node met while it served."""
ASIDE: Final = "damaged-"
"""Folders that hold what was set aside."""
FOLDERS: Final = ("log", "hours", KEYSPACE, "ids", "ready")
"""Of a data folder: what is derived from its log, and the log."""
TICK: Final = "tick"
CHECKPOINT: Final = "checkpoint-"


def contents_of(fs: FileSystem, folder: str) -> list[str]:
    """Names of all that a data folder holds of the cluster's data; promises are none of it."""
    return [
        name
        for name in fs.listdir(folder)
        if name in FOLDERS or name == TICK or name.startswith(CHECKPOINT)
    ]


def copy_unfinished(folder: str) -> bool:
    """Whether a copy has begun to take the place of what this folder held."""
    return any(os.path.lexists(f"{folder}/{name}") for name in (COPIED, PLACING))


class IncomingFolder:
    """A copy in the making inside a data folder. Blocks: for a thread that may wait."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self._fs = fs
        self._folder = folder
        self._place = f"{folder}/{INCOMING}"
        self._file: File | None = None
        self._name = ""
        self._names: set[str] = set()
        self._unsynced = 0

    def begin(self) -> None:
        """An empty folder."""
        self.remove()
        self._fs.mkdir(f"{self._place}/log")
        self._fs.mkdir(f"{self._place}/hours")
        self._fs.sync_folder(self._folder)

    def remove(self) -> None:
        """What was written is of no use."""
        self.close()
        self._names.clear()
        if self._fs.exists(self._place):
            self._fs.remove_tree(self._place)

    def close(self) -> None:
        """Close the file that is being written."""
        if self._file is not None:
            self._file.close()
        self._file, self._name = None, ""

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Bytes of one file. Raises BackupError for a name that no copy has."""
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
            raise BackupError(f"a copy cannot hold {name!r}")
        self.close()
        path = f"{self._place}/{name}"
        self._fs.mkdir(parent_of(path))
        self._file, self._name = self._fs.open(path, create=True), name
        self._names.add(name)
        return self._file

    def finish(self) -> Manifest:
        """All has come: check every file and make it durable. Raises BackupError."""
        self.close()
        manifest = read_manifest(self._fs, self._place)
        strange = self._names - {entry.path for entry in manifest.files} - {MANIFEST}
        if strange:
            raise BackupError(f"the copy holds {min(strange)!r}, which it does not name")
        for entry in manifest.files:
            self._check(entry)
        for name in self._fs.listdir(f"{self._place}/hours"):
            self._fs.sync_folder(f"{self._place}/hours/{name}")
        for name in ("hours", "log", KEYSPACE):
            if self._fs.exists(f"{self._place}/{name}"):
                self._fs.sync_folder(f"{self._place}/{name}")
        self._fs.sync_folder(self._place)
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
            raise BackupError(f"{entry.path} of the copy does not hold the bytes that were read")
        self.close()

    def keep(self, tick: TickRecord) -> None:
        """From here on the copy is what the node holds: `install` goes on.

        `tick` is the node's own: what it knows of the leaders' ticks it still knows, and its log
        is durable up to where the copy's ends.
        """
        assert self._file is None, "it is finished"
        path = f"{self._place}/{TICK}"
        if self._fs.exists(path):
            self._fs.unlink(path)
        with closing(self._fs.open(path, create=True)) as file:
            slot = encode_slot(tick, sequence=2)
            assert len(slot) == TICK_SLOT_SIZE, "the first of two slots"
            file.pwritev([slot], 0)
            file.fdatasync()
        self._fs.unlink(f"{self._place}/{MANIFEST}")
        self._fs.sync_folder(self._place)
        self._fs.rename(self._place, f"{self._folder}/{COPIED}")
        self._fs.sync_folder(self._folder)


def install(fs: FileSystem, folder: str) -> bool:
    """Finish what a copy began, and drop one that is not whole; whether the folder is another one.

    Nobody has a file of the folder open.
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

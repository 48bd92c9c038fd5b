"""Snapshots of the keyspace as files: made from durable data, loaded at a start, removed.

A snapshot is made from the one before it and the KEYSPACE frames of the log since, never from the
keyspace in memory. So another process can make it, which needs only the folder. A file gets its
name only when all of it is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final

from delaylog.broker.engine.keyspace.keyspace_part import (
    AnyKeyspace,
    KeyspaceBase,
    Pieces,
    Summary,
    apply_effects,
    is_missing,
    keyspace_part,
    refuse,
)
from delaylog.storage.checkpoint import Checkpoint
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.layout import FrameHeader, FrameKind
from delaylog.storage.log.log_reader import FrameHops, segment_bases
from delaylog.storage.messages.batch import Block

FOLDER: Final = "keyspace"
_SUFFIX: Final = ".snapshot"
_ASIDE: Final = ".tmp"
_WRITE_BYTES: Final = 1 << 20
_SYNC_BYTES: Final = 32 << 20
"""Bytes written between two syncs, so that no gigabytes are left to write at the end."""
_READ_BYTES: Final = 1 << 20
_FRAMES_A_SLICE: Final = 1_000


def snapshot_name(position: int) -> str:
    """File name of the snapshot of everything before `position`."""
    return f"{position:020d}{_SUFFIX}"


def position_of_name(name: str) -> int | None:
    """The position in a snapshot's file name; None if it is not one."""
    digits = name.removesuffix(_SUFFIX)
    return int(digits) if name != digits and len(digits) == 20 and digits.isdigit() else None


def refuse_without_part(checkpoint: Checkpoint) -> None:
    """Raise MissingPartError if a checkpoint has a keyspace, and nothing here can read it."""
    base = base_of(checkpoint)
    if (base.file or base.frames) and is_missing():
        refuse()


def base_of(checkpoint: Checkpoint) -> KeyspaceBase:
    """The base from which a start restores the keyspace of a checkpoint."""
    return KeyspaceBase(**checkpoint.members.get("keyspace", {}))


# --------------------------------------------------------------------------- files


class Reader:
    """Reads a file from its beginning, with read-ahead."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._size = file.size()
        self._at = 0
        self._window, self._used = b"", 0

    def __call__(self, size: int) -> bytes:
        if self._used + size > len(self._window):
            # A corrupt size may ask for more than there is.
            wanted = min(max(size, _READ_BYTES), self._size - self._at)
            self._window = self._file.pread(wanted, self._at)
            self._used = 0
        found = self._window[self._used : self._used + size]
        self._used += len(found)
        self._at += len(found)
        return found


class _Appender:
    """Writes a file from its beginning."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._blocks: list[Block] = []
        self._size = self._at = self._unsynced = 0

    def __call__(self, block: bytes) -> None:
        self._blocks.append(block)
        self._size += len(block)
        if self._size >= _WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._blocks:
            self._file.pwritev(self._blocks, self._at)
        self._at += self._size
        self._unsynced += self._size
        self._blocks, self._size = [], 0
        if self._unsynced >= _SYNC_BYTES:
            self._file.fdatasync()
            self._unsynced = 0


# --------------------------------------------------------------------------- loading


def load_base(fs: FileSystem, folder: str, base: KeyspaceBase, keyspace: AnyKeyspace) -> None:
    """Fill an empty keyspace from the snapshot that a base names. Raises CorruptionError."""
    if not base.file:
        return
    path, part = f"{folder}/{FOLDER}/{base.file}", keyspace_part()
    try:
        file = fs.open(path)
    except FileNotFoundError:
        raise CorruptionError("a snapshot is missing", path=path, position=0) from None
    try:
        summary = part.load_snapshot(keyspace, Reader(file))
    except part.SnapshotError as error:
        raise CorruptionError(error.what, path=path, position=error.offset) from None
    finally:
        file.close()
    if summary.position != position_of_name(base.file) or summary.position > base.position:
        raise CorruptionError("a snapshot of another time", path=path, position=0)


def _is_keyspace(header: FrameHeader) -> bool:
    return header.kind == FrameKind.KEYSPACE


def replay_keyspace(
    fs: FileSystem,
    folder: str,
    base: KeyspaceBase,
    keyspace: AnyKeyspace,
    upto: int,
    *,
    working: Callable[[int, int], None] = lambda done, total: None,
) -> Pieces:
    """Apply the KEYSPACE frames between a base and `upto`; returns unfinished pieces of effects.

    Other frames are not read, so a frame with a corrupt kind would be skipped. It is missed by the
    number of frames that the base has counted. Raises CorruptionError.
    """
    pieces = Pieces()
    if not base.frames:
        return pieces
    log = f"{folder}/log"
    bases = segment_bases(fs, log)
    if not bases or bases[0] > base.position:
        raise CorruptionError("the log begins behind the snapshot", path=log, position=upto)
    hops = FrameHops(fs, log, start=base.position, end=upto)
    found = 0
    try:
        while hops.position < upto:
            for frame in hops.run(_FRAMES_A_SLICE, _is_keyspace):
                header = frame.header
                position = header.position
                effects = pieces.take(frame.payload, header.epoch, path=log, position=position)
                apply_effects(keyspace, effects)
                found += 1
            if hops.skipped:
                raise CorruptionError("a gap between segments", path=log, position=hops.position)
            working(hops.position - base.position, upto - base.position)
    finally:
        hops.close()
    if found != base.frames:
        raise CorruptionError(
            "frames of the keyspace are missing",
            path=log,
            position=base.position,
            detail=f"{found} up to {upto}, {base.frames} were written",
        )
    return pieces


@dataclass(frozen=True, slots=True)
class LoadedKeyspace:
    """The keyspace as of a checkpoint, for an engine that starts from it."""

    keyspace: AnyKeyspace
    base: KeyspaceBase
    pieces: Pieces
    position: int
    """Position of the checkpoint."""


def load_keyspace(
    fs: FileSystem,
    folder: str,
    checkpoint: Checkpoint,
    keyspace: AnyKeyspace,
    *,
    working: Callable[[int, int], None] = lambda done, total: None,
) -> LoadedKeyspace:
    """Fill an empty keyspace as of a checkpoint: from a snapshot, and frames up to there.

    Reads files only, so any thread may call it. Raises CorruptionError.
    """
    base, position = base_of(checkpoint), checkpoint.position
    load_base(fs, folder, base, keyspace)
    pieces = replay_keyspace(fs, folder, base, keyspace, position, working=working)
    return LoadedKeyspace(keyspace, base, pieces, position)


def reload_keyspace(
    fs: FileSystem, folder: str, base: KeyspaceBase, upto: int, random: Random
) -> AnyKeyspace:
    """The keyspace as of `upto`, a durable position; no key of it expires yet.

    Reads files only, so any thread may call it. Raises CorruptionError, also if the snapshot of
    `base` was replaced and removed meanwhile.
    """
    keyspace = keyspace_part().Keyspace(random)
    keyspace.stop_expiring()
    load_base(fs, folder, base, keyspace)
    replay_keyspace(fs, folder, base, keyspace, upto)
    return keyspace


# --------------------------------------------------------------------------- making


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """A snapshot to make; plain values only, for another process."""

    folder: str
    """The data folder."""
    base_file: str
    base_position: int
    position: int
    """The log position of the snapshot: committed and durable."""
    frames: int
    """KEYSPACE frames between the two positions."""
    bytes: int
    token: str
    """Part of the file name while it is written; different for each attempt."""

    def as_dict(self) -> dict[str, Any]:
        """As members, for another process."""
        return asdict(self)

    @property
    def name(self) -> str:
        """Name of the finished file."""
        return snapshot_name(self.position)

    @property
    def aside_name(self) -> str:
        """Name of the file while it is written."""
        return f"{self.name}.{self.token}{_ASIDE}"

    @property
    def aside(self) -> str:
        """Path of the file while it is written."""
        return f"{self.folder}/{FOLDER}/{self.aside_name}"


def make_snapshot(fs: FileSystem, task: SnapshotTask) -> Summary:
    """Make a snapshot file, which is durable when this returns. Raises StorageError."""
    part = keyspace_part()
    keyspace = part.Keyspace(Random(0))
    keyspace.stop_expiring()
    base = KeyspaceBase(task.base_file, 0, task.base_position, task.frames, task.bytes)
    load_base(fs, task.folder, base, keyspace)
    replay_keyspace(fs, task.folder, base, keyspace, task.position)
    path = f"{task.folder}/{FOLDER}"
    if not fs.exists(path):
        fs.mkdir(path)
        fs.sync_folder(task.folder)
    with closing(fs.open(task.aside, create=True)) as file:
        write = _Appender(file)
        summary = part.write_snapshot(keyspace, task.position, write)
        write.flush()
        file.fdatasync()
    fs.rename(task.aside, f"{path}/{task.name}")
    fs.sync_folder(path)
    return summary


def forget_task(fs: FileSystem, task: SnapshotTask) -> None:
    """Remove the file of an attempt that was not finished."""
    with suppress(FileNotFoundError):
        fs.unlink(task.aside)


def drop_snapshots(fs: FileSystem, folder: str, keep: set[str] | None) -> int:
    """Remove all snapshots except `keep` (None = all finished ones); returns how many."""
    path = f"{folder}/{FOLDER}"
    if not fs.exists(path):
        return 0
    dropped = 0
    for name in fs.listdir(path):
        if keep is None:
            over = name.endswith(_ASIDE)
        else:
            ours = name.endswith(_ASIDE) or position_of_name(name) is not None
            over = ours and name not in keep
        if over:
            fs.unlink(f"{path}/{name}")
            dropped += 1
    return dropped

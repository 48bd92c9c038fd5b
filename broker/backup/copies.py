"""What a backup consists of: copies of files, and `backup.json`, which lists them.

A copy is checksummed while it is made, with holes in place of zeros. It is written in order and
synced every few megabytes, so that a large backup beside a busy broker never leaves the disk with
gigabytes to write back at once, and it is durable at the end.

`backup.json` has the size and checksum of every file. It is written last, so a folder without it is
not a complete backup. Its member `crc32c` is the checksum of the object without this member, as
JSON with sorted keys and no spaces.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import orjson
from crc32c import crc32c

from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File, FileSystem, read_file

# ------------------------------------------------------------------------------------- manifest

MANIFEST: Final = "backup.json"
FORMAT: Final = 1
_FILE_NAME: Final = re.compile(
    r"tick|checkpoint-[0-9]+|log/[0-9]{20}\.log|keyspace/[0-9]{20}\.snapshot"
    r"|hours/far/[0-9]+\.run|schedules/[0-9]+\.(rows|definitions)"
    r"|hours/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}Z/[A-Za-z0-9_-][A-Za-z0-9._-]*"
)


def is_backup_file(name: str) -> bool:
    """Whether a backup may have a file of this name. No such name leads out of its folder."""
    return _FILE_NAME.fullmatch(name) is not None


def is_inside(path: str, folder: str) -> bool:
    """Whether a path, links resolved, is a folder or lies below it."""
    return f"{os.path.realpath(path)}/".startswith(os.path.realpath(folder).rstrip("/") + "/")


def files_below(folder: str) -> Iterator[str]:
    """The paths of all files below a folder, relative to it."""
    for parent, _, names in os.walk(folder):
        for name in names:
            yield os.path.relpath(f"{parent}/{name}", folder)


class BackupError(Exception):
    """A backup cannot be made, or is damaged. The text says what to do."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a backup."""

    path: str
    """Relative to the backup's folder."""
    size: int
    crc32c: int
    """Checksum of the first `size` bytes."""
    hole: int = 0
    """Number of zero bytes behind these, stored as a hole: state files grow by whole pieces."""


@dataclass(slots=True)
class Manifest:
    """The content of `backup.json`. Positions are byte positions in the physical log."""

    version: str
    """The release of delaylog that made the backup."""
    source: str
    """Path of the data folder."""
    began_at_ms: int
    """Everything acknowledged before this time is in the backup."""
    ended_at_ms: int = 0
    position: int = 0
    """Position of the checkpoint that the backup begins with; 0 without one."""
    end_position: int = 0
    """End of the backup's log."""
    hours: int = 0
    rows: int = 0
    """Rows in the hours' files, without those of the log behind the checkpoint."""
    frames: int = 0
    """Frames of the log behind the checkpoint."""
    cluster: str = ""
    """Id of the folder's cluster, in hex digits; empty for a single broker."""
    files: list[FileEntry] = field(default_factory=list)

    @property
    def byte_count(self) -> int:
        """Total size of all files, without the holes at their ends."""
        return sum(entry.size for entry in self.files)

    def encode(self) -> bytes:
        """The file's bytes."""
        members = {"format": FORMAT, **asdict(self)}
        members["crc32c"] = _seal(members)
        return orjson.dumps(members, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _seal(members: dict[str, Any]) -> int:
    return crc32c(orjson.dumps(members, option=orjson.OPT_SORT_KEYS))


def read_manifest(fs: FileSystem, backup: str) -> Manifest:
    """Read and check the manifest of a backup. Raises BackupError."""
    path = f"{backup}/{MANIFEST}"
    if not fs.exists(path):
        raise BackupError(f"{backup} is not a complete backup: it has no {MANIFEST}")
    try:
        members = orjson.loads(read_file(fs, path))
        sealed, found = members.pop("crc32c"), members.pop("format")
    except (ValueError, KeyError, AttributeError, TypeError):
        raise BackupError(f"{path} is damaged: take another backup") from None
    if found != FORMAT:
        raise BackupError(
            f"{path} has format {found!r}, but this delaylog reads format {FORMAT}: restore it "
            f"with the version that made it, {members.get('version', 'which it does not name')}"
        )
    if sealed != _seal({"format": found, **members}):
        raise BackupError(f"{path} is damaged: take another backup")
    try:
        files = [FileEntry(**entry) for entry in members.pop("files")]
        manifest = Manifest(**members, files=files)
    except (TypeError, KeyError):
        raise BackupError(f"{path} has members that this delaylog does not know") from None
    for entry in manifest.files:
        if not is_backup_file(entry.path):
            raise BackupError(f"{path} names {entry.path!r}, which is not a file of a backup")
    return manifest


# --------------------------------------------------------------------------------------- copies

PART_BYTES: Final = 256 << 10
SYNC_BYTES: Final = 32 << 20
_ZEROS: Final = bytes(PART_BYTES)

Progress = Callable[[str, int], None]
"""Called with the name of the file being copied and the number of bytes just copied."""


class TargetFile(Protocol):
    """A file of a copy: written in order, never read back."""

    def pwritev(self, buffers: Sequence[Any], offset: int) -> int: ...

    def fdatasync(self) -> None: ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class Target(Protocol):
    """The target of a copy: a file system, or a node that writes the files sent to it."""

    def open(self, path: str, *, create: bool = False) -> TargetFile: ...

    def mkdir(self, path: str) -> None: ...

    def sync_folder(self, path: str) -> None: ...


Target_co = TypeVar("Target_co", bound=Target, covariant=True)


@dataclass(frozen=True, slots=True)
class Route(Generic[Target_co]):
    """The source and the target of the copy of a folder."""

    source: FileSystem
    folder: str
    target: Target_co
    dest: str

    def begin(self, path: str, progress: Progress) -> CopiedFile:
        """Create the copy of a file, still empty; `path` is relative to both folders."""
        return CopiedFile(self.target, self.dest, path, progress)


class CopiedFile:
    """A file being written at `folder`/`path`; the caller creates the folders."""

    def __init__(self, fs: Target, folder: str, path: str, progress: Progress) -> None:
        self._file = fs.open(f"{folder}/{path}", create=True)
        self._path = path
        self._progress = progress
        self._unsynced = 0
        self._size = 0
        self._crc = 0

    def append(self, part: bytes) -> None:
        """Append bytes."""
        self._crc = crc32c(part, self._crc)
        # State files are mostly holes; ranges of zeros stay holes in the copy.
        if part != _ZEROS[: len(part)]:
            self._file.pwritev([part], self._size)
            self._unsynced += len(part)
        self._size += len(part)
        if self._unsynced >= SYNC_BYTES:
            self._file.fdatasync()
            self._unsynced = 0
        self._progress(self._path, len(part))

    def copy(self, source: File, start: int, size: int) -> int:
        """Append a range of another file; return the range's crc32c."""
        at, end, crc = start, start + size, 0
        while at < end:
            part = source.pread(min(PART_BYTES, end - at), at)
            if not part:
                raise CorruptionError("bytes are missing", path=self._path, position=at)
            crc = crc32c(part, crc)
            self.append(part)
            at += len(part)
        return crc

    def finish(self, hole: int = 0) -> FileEntry:
        """Append a number of zero bytes as a hole, make the file durable, and return its entry."""
        self._file.truncate(self._size + hole)
        self._file.fdatasync()
        return FileEntry(self._path, self._size, self._crc, hole)

    def close(self) -> None:
        """Close the file, finished or not."""
        self._file.close()

"""`backup.json`: the contents of a backup, with the size and checksum of every file.

It is written last, so a folder without it is not a complete backup. Its member `crc32c` is the
checksum of the object without this member, as JSON with sorted keys and no spaces.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import orjson
from crc32c import crc32c

from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.files.whole_files import read_file

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

"""Small files that are read and written whole.

A replacement is durable before it is renamed, so a crash leaves either the old file or the new one.
The rename itself is durable once the caller has synced the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from delaylog.storage.files.file_system import FileSystem


def read_file(fs: FileSystem, path: str) -> bytes:
    """All bytes of a file."""
    with closing(fs.open(path)) as file:
        return file.pread(file.size(), 0)


def size_of(fs: FileSystem, path: str) -> int:
    """The size of a file in bytes."""
    with closing(fs.open(path)) as file:
        return file.size()


def write_file(fs: FileSystem, path: str, parts: Sequence[Any]) -> None:
    """Create a file with these bytes, durably; it must not exist."""
    with closing(fs.open(path, create=True)) as file:
        file.pwritev(parts, 0)
        file.fdatasync()


def replace_file(fs: FileSystem, path: str, parts: Sequence[Any]) -> None:
    """Write a temporary file, durably, and rename it to `path`."""
    aside = f"{path}.tmp"
    if fs.exists(aside):
        fs.unlink(aside)
    write_file(fs, aside, parts)
    fs.rename(aside, path)

"""Small files that are read and written whole.

What replaces a file is durable before it takes the name, so a crash leaves the old file or the new
one. The rename itself is durable once its folder is synced, which is up to the caller.
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
    """The bytes of a file."""
    with closing(fs.open(path)) as file:
        return file.size()


def write_file(fs: FileSystem, path: str, parts: Sequence[Any]) -> None:
    """Make a file that does not exist of these bytes, durably."""
    with closing(fs.open(path, create=True)) as file:
        file.pwritev(parts, 0)
        file.fdatasync()


def replace_file(fs: FileSystem, path: str, parts: Sequence[Any]) -> None:
    """Write a file aside, durably, and rename it to `path`."""
    aside = f"{path}.tmp"
    if fs.exists(aside):
        fs.unlink(aside)
    write_file(fs, aside, parts)
    fs.rename(aside, path)

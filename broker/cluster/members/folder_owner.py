"""Whose folder it is: the node that a data folder belongs to, for who reads it from outside."""

from __future__ import annotations

from typing import Final

from delaylog.replication.errors import MetaDamagedError
from delaylog.replication.meta import load_meta
from delaylog.storage.files.file_system import FileSystem

META: Final = "meta"
"""The file in a member's data folder that says what it has promised, and who it is."""


def cluster_of(fs: FileSystem, folder: str) -> bytes:
    """The random id of its cluster; nothing without one, or where the file cannot be read."""
    try:
        meta = load_meta(fs, f"{folder}/{META}")
    except MetaDamagedError:
        return b""
    return b"" if meta is None else meta.cluster


def node_of(fs: FileSystem, folder: str) -> int:
    """Its index in its cluster; 0 without a cluster, and where the file cannot be read.

    Frames say what was synced on the disk of the node that made them, so a log tells a torn tail
    from rot only to who knows which frames are its own.
    """
    try:
        meta = load_meta(fs, f"{folder}/{META}")
    except MetaDamagedError:
        return 0
    return 0 if meta is None else meta.node_id

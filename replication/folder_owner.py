"""The cluster and node that a data folder belongs to, for tools that read it from outside."""

from __future__ import annotations

from typing import Final

from delaylog.replication.errors import MetaDamagedError
from delaylog.replication.meta import load_meta
from delaylog.storage.files.file_system import FileSystem

META: Final = "meta"
"""The file in a member's data folder with its identity and its promises."""


def cluster_of(fs: FileSystem, folder: str) -> bytes:
    """The random id of its cluster; empty without one, or if the file cannot be read."""
    try:
        meta = load_meta(fs, f"{folder}/{META}")
    except MetaDamagedError:
        return b""
    return b"" if meta is None else meta.cluster


def node_of(fs: FileSystem, folder: str) -> int:
    """Its index in its cluster; 0 without a cluster, or if the file cannot be read.

    A frame records what was synced on the disk of the node that made it. So a reader needs the
    node's index to tell a torn tail from corruption.
    """
    try:
        meta = load_meta(fs, f"{folder}/{META}")
    except MetaDamagedError:
        return 0
    return 0 if meta is None else meta.node_id

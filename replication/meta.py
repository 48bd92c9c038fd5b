"""The file `meta`: what a node must still know after it was killed to keep its promises.

    32 bytes FILE_HEADER (magic "DLME", version, payload size, crc32c), then a msgpack map:
    format · cluster_id (16 bytes) · node_id · members {index: address} · promised_epoch · voter ·
    cluster (16 bytes, or none) · incarnations · met {index: incarnation} · learners · known_to

0.1.0 did not write the last line, and ignores it. A folder gets a new, random incarnation each time
that a node begins to run on it; `met` holds the newest one of each other voter's folder, `learners`
that of a node that came as a learner since, and `known_to` the one of this folder that each other
node has met last.

It is replaced as a whole (written aside, fsynced, renamed, folder fsynced) and `save` returns only
then, so that every reply that reflects a promise follows it. A missing file means that this node
knows of no promise: it may be new, or have lost its disk. Nothing here decides which; who makes
the file anew says whether the node votes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgpack

from delaylog.replication.configuration import CLUSTER_ID_SIZE, Configuration
from delaylog.replication.errors import ClusterError, MetaDamagedError
from delaylog.storage.files.file_system import FileSystem, parent_of
from delaylog.storage.files.whole_files import read_file, replace_file
from delaylog.storage.layout import open_file, seal_file

META_MAGIC: Final = 0x454D4C44  # "DLME"
META_FORMAT: Final = 1
INCARNATIONS_MAX: Final = 256
"""Starts that a folder remembers, and the ones that other nodes remember in any case."""


@dataclass(frozen=True, slots=True)
class Meta:
    """Who this node is and what it has promised."""

    cluster_id: bytes
    """Follows from the cluster's name."""
    node_id: int
    members: dict[int, str] = field(hash=False)
    """Index of each founding node -> its address; empty = this node knows of no cluster yet."""
    promised_epoch: int = 0
    voter: bool = True
    """Whether it counts; a learner does not until it is readmitted."""
    cluster: bytes = b""
    """The random id of the cluster; nothing while it is not known."""
    incarnations: tuple[int, ...] = ()
    """Of this folder, oldest first."""
    met: dict[int, int] = field(default_factory=dict, hash=False)
    """The newest incarnation of each other voter that this node has met."""
    learners: dict[int, int] = field(default_factory=dict, hash=False)
    """The newest one of each node that has come as a learner since it came as a voter."""
    known_to: dict[int, int] = field(default_factory=dict, hash=False)
    """The newest incarnation of this folder that each other node has met."""

    def __post_init__(self) -> None:
        self.founding()
        if len(self.cluster_id) != CLUSTER_ID_SIZE:
            raise ClusterError(f"a cluster id has {CLUSTER_ID_SIZE} bytes")
        if self.members and self.node_id not in self.members:
            raise ClusterError(f"node {self.node_id} is not among the members")

    @classmethod
    def learner(cls, cluster_id: bytes, node_id: int, members: dict[int, str]) -> Meta:
        """Of a node whose disk is blank or was damaged: it may have promised anything."""
        return cls(cluster_id, node_id, members, voter=False)

    def founding(self) -> Configuration:
        """The configuration that holds until the log has one. Raises ClusterError."""
        return Configuration.founding(self.members) if self.members else Configuration(())

    def promise(self, epoch: int) -> Meta:
        """The same with a newer promise."""
        assert epoch > self.promised_epoch, "a promise never falls"
        return replace(self, promised_epoch=epoch)

    def reborn(self, incarnation: int) -> Meta:
        """A copy with the incarnation of a new process appended.

        Old ones are forgotten, but not what another node remembers: it may be away for long.
        """
        known = {*self.known_to.values()}
        spare = len(self.incarnations) + 1 - INCARNATIONS_MAX
        kept = []
        for one in self.incarnations:
            if spare > 0 and one not in known:
                spare -= 1
            else:
                kept.append(one)
        return replace(self, incarnations=(*kept, incarnation))

    def has_met(self, node: int, incarnation: int, *, voter: bool) -> Meta:
        """A copy that has met another node's folder, and is known to it."""
        met, learners = dict(self.met), dict(self.learners)
        learners.pop(node, None)
        (met if voter else learners)[node] = incarnation
        known_to = {**self.known_to, node: self.incarnations[-1]}
        return replace(self, met=met, learners=learners, known_to=known_to)

    def has_forgotten(self, nodes: Collection[int]) -> Meta:
        """A copy that knows no folder of these nodes."""
        met = {node: one for node, one in self.met.items() if node not in nodes}
        learners = {node: one for node, one in self.learners.items() if node not in nodes}
        return replace(self, met=met, learners=learners)

    def readmitted(self) -> Meta:
        """The same as a voter."""
        return replace(self, voter=True)


def encode_meta(meta: Meta) -> bytes:
    """The bytes of the file."""
    members = {
        "format": META_FORMAT,
        "cluster_id": meta.cluster_id,
        "node_id": meta.node_id,
        "members": meta.members,
        "promised_epoch": meta.promised_epoch,
        "voter": meta.voter,
        "cluster": meta.cluster,
        "incarnations": meta.incarnations,
        "met": meta.met,
        "learners": meta.learners,
        "known_to": meta.known_to,
    }
    return seal_file(META_MAGIC, msgpack.packb(members))


def decode_meta(raw: bytes, path: str) -> Meta:
    """What the bytes say. Raises MetaDamagedError."""
    opened = open_file(META_MAGIC, raw)
    if opened is None:
        raise MetaDamagedError(path, "its checksum does not hold")
    try:
        members: dict[str, Any] = msgpack.unpackb(opened[0], strict_map_key=False)
        if members["format"] != META_FORMAT:
            raise MetaDamagedError(path, f"format {members['format']}, not {META_FORMAT}")
        return Meta(
            members["cluster_id"],
            members["node_id"],
            members["members"],
            members["promised_epoch"],
            members["voter"],
            members.get("cluster", b""),
            tuple(members.get("incarnations", ())),
            members.get("met", {}),
            members.get("learners", {}),
            members.get("known_to", {}),
        )
    except (ValueError, KeyError, TypeError, ClusterError) as error:
        raise MetaDamagedError(path, f"its members make no sense: {error!r}") from error


class MetaFile:
    """The file of one data folder."""

    def __init__(self, fs: FileSystem, path: str, meta: Meta) -> None:
        """Stand on what `load_meta` gave or `make` wrote."""
        self._fs = fs
        self.path = path
        self.meta = meta

    @classmethod
    def make(cls, fs: FileSystem, path: str, meta: Meta) -> MetaFile:
        """Begin a file: of a voter only while the cluster is made, later of a `Meta.learner`."""
        file = cls(fs, path, meta)
        file.save(meta)
        return file

    def save(self, meta: Meta) -> None:
        """Replace it; durable when it returns."""
        replace_file(self._fs, self.path, [encode_meta(meta)])
        self._fs.sync_folder(parent_of(self.path))
        self.meta = meta


def load_meta(fs: FileSystem, path: str) -> Meta | None:
    """What the file says; None if there is none. Raises MetaDamagedError."""
    if not fs.exists(path):
        return None
    return decode_meta(read_file(fs, path), path)

"""The file `meta`: the identity and the promises of a node, which must survive a kill.

    32 bytes FILE_HEADER (magic "DLME", version, payload size, crc32c), then a msgpack map:
    format · cluster_id (16 bytes) · node_id · members {index: address} · promised_epoch · voter ·
    cluster (16 bytes, or none) · incarnations · met {index: incarnation} · learners · known_to

A folder gets a new, random incarnation each time that a node starts on it; `met` has the newest one
of each other voter's folder, `learners` that of each node that has connected as a learner since,
and `known_to` the incarnation of this folder that each other node remembers.

The file is replaced as a whole (written aside, fsynced, renamed, folder fsynced) before `save`
returns, so every reply that depends on a promise follows it. A missing file means that this node
knows no promise: it may be new, or have lost its disk. The caller that makes a new file decides
whether the node votes.

`cluster_of` and `node_of` are for tools that read a data folder from outside.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

import msgpack

from delaylog.replication.configuration import CLUSTER_ID_SIZE, Configuration
from delaylog.replication.errors import ClusterError, MetaDamagedError
from delaylog.storage.errors import OlderFormatError
from delaylog.storage.files.file_system import FileSystem, parent_of, read_file, replace_file
from delaylog.storage.layout import open_file, seal_file

META_MAGIC: Final = 0x454D4C44  # "DLME"
META_FORMAT: Final = 1
INCARNATIONS_MAX: Final = 256
"""Most incarnations that a folder remembers; those that other nodes remember always stay."""


@dataclass(frozen=True, slots=True)
class Meta:
    """The identity and the promises of a node: the members of the file, in their order."""

    cluster_id: bytes
    """Derived from the cluster's name."""
    node_id: int
    members: dict[int, str] = field(hash=False)
    """Index of each founding node -> its address; empty = this node knows of no cluster yet."""
    promised_epoch: int = 0
    voter: bool = True
    """Whether it votes; a learner does not until it is readmitted."""
    cluster: bytes = b""
    """The random id of the cluster; empty while it is not known."""
    incarnations: tuple[int, ...] = ()
    """The incarnations of this folder, oldest first."""
    met: dict[int, int] = field(default_factory=dict, hash=False)
    """The newest incarnation of each other voter's folder."""
    learners: dict[int, int] = field(default_factory=dict, hash=False)
    """The newest incarnation of each node that has connected as a learner since then."""
    known_to: dict[int, int] = field(default_factory=dict, hash=False)
    """The newest incarnation of this folder that each other node remembers."""

    def __post_init__(self) -> None:
        self.founding()
        if len(self.cluster_id) != CLUSTER_ID_SIZE:
            raise ClusterError(f"a cluster id has {CLUSTER_ID_SIZE} bytes")
        if self.members and self.node_id not in self.members:
            raise ClusterError(f"node {self.node_id} is not among the members")

    @classmethod
    def learner(cls, cluster_id: bytes, node_id: int, members: dict[int, str]) -> Meta:
        """The meta of a node whose disk is blank or damaged: it may have promised anything."""
        return cls(cluster_id, node_id, members, voter=False)

    def founding(self) -> Configuration:
        """The configuration in force until the log has one. Raises ClusterError."""
        return Configuration.founding(self.members) if self.members else Configuration(())

    def promise(self, epoch: int) -> Meta:
        """A copy with a newer promise."""
        assert epoch > self.promised_epoch, "a promise never falls"
        return replace(self, promised_epoch=epoch)

    def reborn(self, incarnation: int) -> Meta:
        """A copy with the incarnation of a new process appended.

        Old incarnations are dropped, except those that another node remembers, which may be away
        for long.
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
        """A copy that remembers another node's folder, which remembers this one."""
        met, learners = dict(self.met), dict(self.learners)
        learners.pop(node, None)
        (met if voter else learners)[node] = incarnation
        known_to = {**self.known_to, node: self.incarnations[-1]}
        return replace(self, met=met, learners=learners, known_to=known_to)

    def has_forgotten(self, nodes: Collection[int]) -> Meta:
        """A copy that remembers no folder of these nodes."""
        met = {node: one for node, one in self.met.items() if node not in nodes}
        learners = {node: one for node, one in self.learners.items() if node not in nodes}
        return replace(self, met=met, learners=learners)

    def readmitted(self) -> Meta:
        """A copy that votes."""
        return replace(self, voter=True)


def encode_meta(meta: Meta) -> bytes:
    """The bytes of the file."""
    return seal_file(META_MAGIC, msgpack.packb({"format": META_FORMAT, **asdict(meta)}))


def decode_meta(raw: bytes, path: str) -> Meta:
    """Decode the bytes of the file. Raises MetaDamagedError and OlderFormatError."""
    opened = open_file(META_MAGIC, raw)
    if opened is None:
        raise MetaDamagedError(path, "its checksum is wrong")
    try:
        members: dict[str, Any] = msgpack.unpackb(opened[0], strict_map_key=False)
        if members["format"] != META_FORMAT:
            raise MetaDamagedError(path, f"format {members['format']}, not {META_FORMAT}")
        if "incarnations" not in members:
            raise OlderFormatError(path)
        known = {each.name: members[each.name] for each in fields(Meta)}
        return Meta(**known | {"incarnations": tuple(known["incarnations"])})
    except (ValueError, KeyError, TypeError, ClusterError) as error:
        raise MetaDamagedError(path, f"its contents are invalid: {error!r}") from error


class MetaFile:
    """The file of one data folder."""

    def __init__(self, fs: FileSystem, path: str, meta: Meta) -> None:
        """`meta` = the contents that `load_meta` has read or `make` writes."""
        self._fs = fs
        self.path = path
        self.meta = meta

    @classmethod
    def make(cls, fs: FileSystem, path: str, meta: Meta) -> MetaFile:
        """Write a new file: of a voter only when the cluster is founded, later of a learner."""
        file = cls(fs, path, meta)
        file.save(meta)
        return file

    def save(self, meta: Meta) -> None:
        """Replace it; durable when it returns."""
        replace_file(self._fs, self.path, [encode_meta(meta)])
        self._fs.sync_folder(parent_of(self.path))
        self.meta = meta


def load_meta(fs: FileSystem, path: str) -> Meta | None:
    """Read the file; None if there is none. Raises MetaDamagedError."""
    if not fs.exists(path):
        return None
    return decode_meta(read_file(fs, path), path)


# ------------------------------------------------------------- the owner of a folder, for tools

META: Final = "meta"
"""The file in a member's data folder with its identity and its promises."""


def cluster_of(fs: FileSystem, folder: str) -> bytes:
    """The random id of its cluster; empty without one, or if the file cannot be read."""
    meta = _readable(fs, folder)
    return b"" if meta is None else meta.cluster


def node_of(fs: FileSystem, folder: str) -> int:
    """Its index in its cluster; 0 without a cluster, or if the file cannot be read.

    A frame records what was synced on the disk of the node that made it. So a reader needs the
    node's index to tell a torn tail from corruption.
    """
    meta = _readable(fs, folder)
    return 0 if meta is None else meta.node_id


def _readable(fs: FileSystem, folder: str) -> Meta | None:
    try:
        return load_meta(fs, f"{folder}/{META}")
    except MetaDamagedError:
        return None

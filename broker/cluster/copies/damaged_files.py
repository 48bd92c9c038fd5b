"""Sets the files of a damaged member aside, so that a copy from the leader can replace them.

Nothing is deleted, and nothing damaged is served. The node may have lost frames that it has
acknowledged, so it goes on as a learner that keeps its promise, until a leader readmits it. This
happens only while another voter with data is reachable: only an operator decides about the last
copy of a cluster's data. The audit log stays.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from delaylog.broker.cluster.config import ClusterConfig
from delaylog.broker.cluster.copies.incoming_folder import (
    ASIDE,
    COPIED,
    MARK,
    PLACING,
    contents_of,
)
from delaylog.broker.cluster.member_files import new_learner
from delaylog.broker.cluster.members.folders import Visitor
from delaylog.broker.cluster.peers import PeerHost, PeerTransport
from delaylog.broker.host.machine import Machine
from delaylog.replication.errors import MetaDamagedError
from delaylog.replication.messages import Hello
from delaylog.replication.meta import META, Meta, MetaFile, load_meta
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FileSystem, read_file, write_file

ASK_SECONDS: Final = 10.0
"""How long a start waits for another voter with data."""

log = logging.getLogger("delaylog.cluster")


class NoCopyError(CorruptionError):
    """This folder is damaged, and no other voter with data answers. Start again later."""

    def __init__(self, damage: CorruptionError) -> None:
        super().__init__(damage.what, path=damage.path, position=damage.position)
        self.detail = str(damage)

    def __str__(self) -> str:
        return self.detail


def note_damage(fs: FileSystem, folder: str, error: CorruptionError) -> None:
    """Record damage for the next start, which may not read the damaged place by itself."""
    path = f"{folder}/{MARK}"
    if fs.exists(path):
        return
    write_file(fs, path, [f"{error}\n".encode()])
    fs.sync_folder(folder)


def noted_damage(fs: FileSystem, folder: str) -> CorruptionError | None:
    """The damage that the previous process has recorded."""
    path = f"{folder}/{MARK}"
    if not fs.exists(path):
        return None
    text = read_file(fs, path).decode(errors="replace").strip()
    return CorruptionError("damage was found before", path=path, position=0, detail=text)


async def heal(
    fs: FileSystem,
    folder: str,
    config: ClusterConfig,
    error: CorruptionError,
    machine: Machine,
    *,
    seconds: float = ASK_SECONDS,
) -> None:
    """Set the data aside to make room for a copy; raise NoCopyError if no node could give one.

    Raises `error` itself in a cluster of one, which has no other node.
    """
    if not config.others:
        raise error
    log.error("this folder is damaged: %s; looking for another voter with the data", error)
    meta = _meta_of(fs, folder, config)
    if not await _somebody_has_it(config, meta, machine, seconds):
        log.error("no other voter with data answers, so nothing is changed here")
        raise NoCopyError(error)
    note_damage(fs, folder, error)
    aside = set_aside(fs, folder, meta, machine.wall_s())
    log.error(
        "the data of this folder was moved to %s; the node goes on as a learner and gets a copy. "
        "Nothing was deleted: remove that folder when you do not need it any more",
        aside,
    )


def set_aside(fs: FileSystem, folder: str, meta: Meta, now_s: float) -> str:
    """Move the data away; returns the path. After a kill the next start does it again.

    The node becomes a learner before any file is moved, and the mark is moved last. If the folder
    was an old copy, the incarnations that it remembers are old too, so they are forgotten.
    """
    MetaFile(fs, f"{folder}/{META}", meta).save(replace(meta, voter=False, met={}, learners={}))
    aside = _free_name(fs, folder, now_s)
    fs.mkdir(aside)
    # Durable first: files moved into a folder that a power cut removes would be lost.
    fs.sync_folder(folder)
    # A copy may be half in place: its other half must not be added to the next copy.
    halves = [name for name in (COPIED, PLACING) if fs.exists(f"{folder}/{name}")]
    for name in (*contents_of(fs, folder), *halves):
        fs.rename(f"{folder}/{name}", f"{aside}/{name}")
    fs.sync_folder(aside)
    fs.sync_folder(folder)
    fs.rename(f"{folder}/{MARK}", f"{aside}/{MARK}")
    fs.sync_folder(aside)
    fs.sync_folder(folder)
    return aside


def _free_name(fs: FileSystem, folder: str, now_s: float) -> str:
    base = f"{folder}/{ASIDE}{datetime.fromtimestamp(now_s, UTC):%Y-%m-%dT%H-%M-%SZ}"
    name, number = base, 1
    while fs.exists(name):
        number += 1
        name = f"{base}-{number}"
    return name


def _meta_of(fs: FileSystem, folder: str, config: ClusterConfig) -> Meta:
    try:
        meta = load_meta(fs, f"{folder}/{META}")
    except MetaDamagedError:
        meta = None
    return meta or new_learner(config)


async def _somebody_has_it(
    config: ClusterConfig, meta: Meta, machine: Machine, seconds: float
) -> bool:
    """Whether another voter with a log can be reached.

    HELLO states a log of one byte: the others must not take this node for one of a new cluster.
    """
    hello = Hello(config.cluster_id, config.node, False, meta.promised_epoch, 1)
    found = asyncio.Event()

    def met(peer: int) -> None:
        heard = transport.hello_of(peer)
        if heard is not None and heard.voter and heard.end > 0:
            found.set()

    host = PeerHost(
        lambda: hello, Visitor(meta), lambda peer, message: None, met, lambda peer, ended: None
    )
    transport = PeerTransport(config.peer_config(), host, machine)
    await transport.start()
    try:
        async with asyncio.timeout(seconds):
            await found.wait()
    except TimeoutError:
        return False
    finally:
        await transport.stop()
    return True

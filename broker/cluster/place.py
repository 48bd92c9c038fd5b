"""Puts the parts of a member together: files, engine, node, connections and oracle."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from delaylog.broker.clock import BrokerClock
from delaylog.broker.cluster.config import load_cluster
from delaylog.broker.cluster.member import ClusterMember
from delaylog.broker.cluster.member_files import MemberFiles, open_member
from delaylog.broker.cluster.oracles import make_oracle
from delaylog.broker.cluster.succession import Succession
from delaylog.broker.config import Config, ConfigError
from delaylog.broker.engine import Engine, Membership
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.node import Node
from delaylog.storage.file_system import OsFileSystem

LEAVE_TRIES: Final = 2
"""A hand-over that nobody took is tried again, with another node, before the node just leaves."""

log = logging.getLogger("delaylog.cluster")


@dataclass(frozen=True)
class ClusterPlace:
    """A node and its membership."""

    node: Node
    member: ClusterMember
    files: MemberFiles

    async def start(self) -> None:
        """Take part. Raises ConfigError if the peers' address cannot be listened on."""
        try:
            await self.member.start()
        except OSError as error:
            host, port = self.member.config.me.peer
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from None

    async def leave(self) -> None:
        """Before an end: have another node lead, if this one does."""
        for _ in range(LEAVE_TRIES):
            if not self.member.leading or not self.member.config.others:
                return
            try:
                if await self.member.hand_over(None) is not None:
                    return
            except NotLeadingError:
                return
        log.warning("nobody took over; the others will find out by themselves")


def take_place(
    config: Config,
    clock: BrokerClock,
    make_engine: Callable[[Membership], Engine],
    on_fatal: Callable[[BaseException], None],
) -> ClusterPlace:
    """Open the folder of a member. Raises ClusterError, CorruptionError and OSError."""
    assert config.cluster is not None, "a cluster is configured"
    cluster = load_cluster(config.cluster, node=config.cluster_node)
    fs = OsFileSystem()
    files = open_member(fs, config.data_dir, cluster)
    member = ClusterMember(
        cluster, files, new_cluster=config.new_cluster, on_fatal=on_fatal, random=Random()
    )
    membership = Membership(files.physical, files.slots, member.committed, member.drop_log)
    node = Node(make_engine(membership), clock, on_fatal)
    succession = Succession(node, lambda: make_engine(membership), member.committed, on_fatal)
    member.attach(node, make_oracle(fs, config.data_dir, member), succession)
    return ClusterPlace(node, member, files)

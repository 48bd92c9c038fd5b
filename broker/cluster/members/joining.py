"""How a new folder joins: as a voter of a new cluster, or as a learner.

A node with a blank disk may have been wiped, after promises and acknowledgements that it does not
know. Only an operator knows that a cluster is new, and states it on every node (`--new-cluster`).
Even then a node becomes a voter only if all other nodes are connected and have the same data, which
is none or copies of one backup. Otherwise it joins as a learner, and a leader readmits it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from delaylog.broker.cluster.member_files import MemberFiles
from delaylog.replication.messages import FolderIdentity
from delaylog.replication.meta import MetaFile

log = logging.getLogger("delaylog.cluster")

_FOUND = (
    "if the cluster is new, stop all its nodes, empty their data folders and start them with "
    "--new-cluster"
)


def is_new(
    mine: FolderIdentity, others: Iterable[int], heard: Mapping[int, FolderIdentity]
) -> bool | None:
    """Whether this node joins as a voter; None until all other nodes have connected."""
    for node in others:
        one = heard.get(node)
        if one is None:
            return None
        if one.history != mine.history:
            return False
    return True


class Joining:
    """How one node joins, by the greetings of the other nodes."""

    def __init__(self, node: int, others: Sequence[int], *, new_cluster: bool) -> None:
        """`new_cluster` = an operator states that the cluster is new."""
        self._node = node
        self._others = others
        self._new_cluster = new_cluster
        self._heard: dict[int, FolderIdentity] = {}

    def hear(self, peer: int, folder: FolderIdentity) -> None:
        """Another node has connected, with this folder."""
        self._heard[peer] = folder

    def waits_for(self) -> str:
        """What keeps this node from joining."""
        away = [node for node in self._others if node not in self._heard]
        if away:
            return f"this node waits for all other members before it joins; missing: {away}"
        first = min(self._others, default=self._node)
        return (
            f"this node waits for node {first} to draw the id of the new cluster: was it started "
            "with --new-cluster and an empty data folder?"
        )

    def enter_blank(self, meta: MetaFile) -> bool:
        """Join as a learner, unless the cluster is stated to be new. Returns whether it joined."""
        if self._new_cluster:
            return False
        log.warning(
            "this folder is blank, so the node joins as a learner until a leader readmits it; %s",
            _FOUND,
        )
        meta.save(meta.meta)
        return True

    def return_without_data(self) -> None:
        """The folder says that this node has joined as a learner, and it has no data yet."""
        if self._new_cluster:
            log.warning(
                "--new-cluster has no effect: this node was started without it before, and has "
                "joined as a learner; %s",
                _FOUND,
            )

    def enter_known(
        self, mine: FolderIdentity, files: MemberFiles, make_id: Callable[[], bytes]
    ) -> bool:
        """Join a cluster that is stated to be new, as a voter or a learner.

        Returns whether it joined; False until all other nodes have connected.

        The node with the smallest index draws the cluster's id, unless a node has one already; the
        others use the id that they receive.
        """
        meta = files.meta
        new = is_new(mine, self._others, self._heard) if self._new_cluster else None
        if new is None:
            return False
        if not new:
            log.warning(
                "another node has a different log, or its cluster file has other members: this "
                "node joins as a learner"
            )
            meta.save(meta.meta)
            return True
        cluster = self._known_id()
        if not cluster:
            if min([self._node, *self._others]) != self._node:
                return False
            cluster = make_id()
        files.begin_alike(cluster)
        meta.save(replace(meta.meta.readmitted(), cluster=cluster))
        log.info(
            "all members have the same data: this node begins as a voter of the new cluster %s",
            cluster.hex(),
        )
        return True

    def _known_id(self) -> bytes:
        """The cluster id that another node has; empty if none has one."""
        for _, one in sorted(self._heard.items()):
            if any(one.cluster):
                return one.cluster
        return b""

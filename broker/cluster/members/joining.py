"""What a folder that is not part of the cluster yet becomes: a voter of a new one, or a learner.

A node whose disk is blank may have been wiped, and have promised and acknowledged anything before.
Only an operator knows that a cluster is new, and says so on every node (`--new-cluster`); even
then a node believes it only when all others are there and hold what it holds, which is nothing
or the same copy. Otherwise it joins as a learner, and a leader lets it in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from delaylog.broker.cluster.member_files import MemberFiles
from delaylog.replication.messages import FolderIdentity, Hello
from delaylog.replication.meta import MetaFile

log = logging.getLogger("delaylog.cluster")


class Heard(NamedTuple):
    """What another node has said when it connected."""

    hello: Hello
    folder: FolderIdentity | None
    """None from a node of feature level 1."""


def is_new(mine: Heard, others: Iterable[int], heard: Mapping[int, Heard]) -> bool | None:
    """Whether this node begins as a voter; None while somebody has not been heard."""
    for node in others:
        one = heard.get(node)
        if one is None:
            return None
        if mine.folder is not None and one.folder is not None:
            if one.folder.history != mine.folder.history:
                return False
        elif one.hello.end != mine.hello.end or (
            mine.hello.end and one.hello.promised != mine.hello.promised
        ):
            # Logs of one length may still be different ones: the newest epoch tells, as long as
            # nobody has begun another.
            return False
    return True


class Joining:
    """How one node comes to be part of its cluster: what the others said, and what it becomes."""

    def __init__(self, node: int, others: Sequence[int], *, new_cluster: bool) -> None:
        """`new_cluster` = an operator says that the cluster is new."""
        self._node = node
        self._others = others
        self._new_cluster = new_cluster
        self._heard: dict[int, Heard] = {}

    def hear(self, peer: int, heard: Heard) -> None:
        """Another node has said what it holds."""
        self._heard[peer] = heard

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
        """Be a learner with a blank folder, unless the cluster is said to be new; whether it is."""
        if self._new_cluster:
            return False
        log.warning(
            "this folder is blank, so the node joins as a learner until a leader lets it in; "
            "if the cluster is new, start all its nodes with --new-cluster"
        )
        meta.save(meta.meta)
        return True

    def enter_known(self, mine: Heard, files: MemberFiles, make_id: Callable[[], bytes]) -> bool:
        """In a cluster that is said to be new, become a voter or a learner by what the others hold.

        False while a node has not been heard.

        The node with the smallest index draws the cluster's id, unless another has one already; the
        others take over what they hear.
        """
        meta = files.meta
        new = is_new(mine, self._others, self._heard) if self._new_cluster else None
        if new is None:
            return False
        if not new:
            log.warning(
                "another node holds a different log, or its cluster file has other members: this "
                "node joins as a learner"
            )
            meta.save(meta.meta)
            return True
        cluster = self._known_id()
        # With a node of feature level 1 the id comes later, by the log.
        if not cluster and all(one.folder is not None for one in self._heard.values()):
            if min([self._node, *self._others]) != self._node:
                return False
            cluster = make_id()
        if cluster:
            files.begin_alike(cluster)
        meta.save(replace(meta.meta.readmitted(), cluster=cluster))
        log.info(
            "all members hold the same: this node begins as a voter of the new cluster %s",
            cluster.hex() or "without an id",
        )
        return True

    def _known_id(self) -> bytes:
        """The cluster id that another node has taken over or drawn; nothing if nobody has one."""
        for _, one in sorted(self._heard.items()):
            if one.folder is not None and any(one.folder.cluster):
                return one.folder.cluster
        return b""

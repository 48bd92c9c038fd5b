"""What a folder that is not part of the cluster yet becomes: a voter of a new one, or a learner.

A node whose disk is blank may have been wiped, and have promised and acknowledged anything before.
Only an operator knows that a cluster is new, and says so on every node (`--new-cluster`); even
then a node believes it only when all others are there and hold what it holds, which is nothing
or the same copy. Otherwise it joins as a learner, and a leader lets it in.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from delaylog.replication.messages import Hello
from delaylog.replication.meta import MetaFile

log = logging.getLogger("delaylog.cluster")


def is_new(mine: Hello, others: Iterable[int], heard: Mapping[int, Hello]) -> bool | None:
    """Whether this node begins as a voter; None while somebody has not been heard."""
    for node in others:
        hello = heard.get(node)
        if hello is None:
            return None
        if hello.end != mine.end or (mine.end and hello.promised != mine.promised):
            # Logs of one length may still be different ones: the newest epoch tells, as long as
            # nobody has begun another.
            return False
    return True


class Joining:
    """How one node comes to be part of its cluster: what the others said, and what it becomes."""

    def __init__(self, others: Sequence[int], *, new_cluster: bool) -> None:
        """`new_cluster` = an operator says that the cluster is new."""
        self._others = others
        self._new_cluster = new_cluster
        self._heard: dict[int, Hello] = {}

    def hear(self, peer: int, hello: Hello) -> None:
        """Another node has said what it holds."""
        self._heard[peer] = hello

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

    def enter_known(self, mine: Hello, meta: MetaFile) -> bool:
        """In a cluster that is said to be new, be what the others show this node to be; False while
        somebody has not been heard.
        """
        new = is_new(mine, self._others, self._heard) if self._new_cluster else None
        if new is None:
            return False
        if new:
            log.info("all members hold the same: this node begins as a voter of a new cluster")
            meta.save(meta.meta.readmitted())
        else:
            log.warning("others hold a log already: this node joins as a learner")
            meta.save(meta.meta)
        return True

"""What a folder that is not part of the cluster yet becomes: a voter of a new one, or a learner.

A node whose disk is blank may have been wiped, and have promised and acknowledged anything before.
Only an operator knows that a cluster is new, and says so on every node (`--new-cluster`); even
then a node believes it only when all others are there and hold what it holds, which is nothing
or the same copy. Otherwise it joins as a learner, and a leader lets it in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from delaylog.replication.messages import Hello


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

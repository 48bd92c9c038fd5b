"""When a node lets others be elected first: while it is unfit, or has a lower priority.

It is not a candidate for a bounded time after the leader has fallen silent, and only while a voter
that is able to lead is connected. So a preference delays a failover by at most that time, and a
cluster in which every disk is full elects a leader at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delaylog.broker.cluster.fitness.judging import Unfit
from delaylog.broker.cluster.fitness.planning import Me
from delaylog.broker.cluster.fitness.targets import Peer, able

LEADER_MS: Final = 200
"""A leader sends a round every 50 ms. While it is heard, a node never stands back: then only a
transfer makes it a candidate."""
UNFIT_MS: Final = 2_000
"""How long the leader has to be silent until an unfit node is a candidate."""
CUT_MS: Final = 60_000
"""The same for a node that was cut off as the leader: it may hear no leader though one leads."""
PRIORITY_MS: Final = 600
"""The same for a node of lower priority: each other voter has been a candidate once by then, with
election timers of at most 500 ms."""


def stands_back(me: Me, peers: Sequence[Peer], silent_ms: int) -> bool:
    """Whether this node stands back now.

    `peers` = the other members without the last leader; `silent_ms` = time without a leader.
    """
    longest_ms = CUT_MS if me.unfit is Unfit.CUT else UNFIT_MS
    if not LEADER_MS <= silent_ms < longest_ms:
        return False
    others = able(peers)
    if me.unfit is not None:
        return bool(others)
    higher = any(peer.priority > me.priority for peer in others)
    return higher and silent_ms < PRIORITY_MS

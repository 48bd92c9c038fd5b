"""When a node lets others be elected first: while it is unfit, or of lower priority.

It stands back for a bounded time after the leader has fallen silent, and only while an able voter
is connected. So a preference costs a fail-over at most that time, and a cluster in which every disk
is full elects somebody at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delaylog.broker.cluster.fitness.planning import Me
from delaylog.broker.cluster.fitness.targets import Peer, able

LEADER_MS: Final = 200
"""A leader sends a round every 50 ms. While it is heard a node always stands: only a transfer asks
it to then."""
UNFIT_MS: Final = 2_000
"""An unfit node stands once the leader has been silent that long."""
PRIORITY_MS: Final = 600
"""A node of lower priority does: each voter has stood once by then (election timers of at most
500 ms)."""


def stands_back(me: Me, peers: Sequence[Peer], silent_ms: int) -> bool:
    """Whether this node does not stand at present.

    `peers` = the other members but the last leader; `silent_ms` = how long no leader was heard.
    """
    if not LEADER_MS <= silent_ms < UNFIT_MS:
        return False
    others = able(peers)
    if me.unfit is not None:
        return bool(others)
    higher = any(peer.priority > me.priority for peer in others)
    return higher and silent_ms < PRIORITY_MS

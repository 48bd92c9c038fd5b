"""Turns the oracle's suggestion into a candidacy, and lets learners vote again.

The oracle is polled, so every method is idempotent. A leader that a majority still follows does not
step down when the oracle suggests another node: that node will become a candidate itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from delaylog.broker.cluster.member_counts import MemberCounts
from delaylog.replication.node import ReplicationNode
from delaylog.replication.timing import Now

READMIT_EVERY_MS: Final = 500

log = logging.getLogger("delaylog.cluster")


class Candidacy:
    """The candidacy of one member."""

    def __init__(self, counts: MemberCounts) -> None:
        self._counts = counts
        self._suggested = False
        self._readmit_ms = 0

    def look(
        self, replication: ReplicationNode, now: Now, *, chosen: bool, silence_ms: float
    ) -> None:
        """Tell replication whether the oracle has chosen this node.

        `silence_ms` = how long a leader counts as followed after a majority's last answers.
        """
        # The node that was chosen instead becomes a candidate; until then this leader goes on.
        suggested = chosen or (self._suggested and _is_followed(replication, now, silence_ms))
        if suggested:
            self._counts.chosen += not self._suggested
            replication.suggest_leader(now)
        elif self._suggested:
            replication.unsuggest_leader()
        if suggested != self._suggested:
            log.info("this node is %s to lead", "chosen" if suggested else "not chosen any more")
        self._suggested = suggested

    def readmit(
        self, replication: ReplicationNode, now: Now, all_have_met: Callable[[int], bool]
    ) -> None:
        """Let learners vote again as soon as that is safe.

        `all_have_met` = whether all other voters remember the present folder of a node.
        """
        leader = replication.leader
        if leader is None or now.boot_ms < self._readmit_ms:
            return
        self._readmit_ms = now.boot_ms + READMIT_EVERY_MS
        for peer, one in leader.progress.items():
            learns = not one.counts and not one.voter
            if learns and all_have_met(peer) and replication.readmit(peer):
                log.warning("node %d has the log and may vote again", peer)


def _is_followed(replication: ReplicationNode, now: Now, silence_ms: float) -> bool:
    """Whether this node leads, and a majority has answered recently."""
    leader = replication.leader
    age_ms = None if leader is None else leader.gate.age_ms(now.boot_ms)
    return age_ms is not None and age_ms < silence_ms

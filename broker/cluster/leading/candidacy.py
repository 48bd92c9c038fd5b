"""What an election's word means to a member: to ask for the lead, or to let it go.

The oracle is asked again and again, so all here does nothing when it is said twice. A leader that a
majority follows lets nothing go because another one was chosen: that one will ask for the lead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from delaylog.broker.cluster.leading.leader_sight import FOLLOWED_MS
from delaylog.broker.cluster.member_counts import MemberCounts
from delaylog.replication.node import ReplicationNode
from delaylog.replication.timing import Now

READMIT_EVERY_MS: Final = 500

log = logging.getLogger("delaylog.cluster")


class Candidacy:
    """One member's."""

    def __init__(self, counts: MemberCounts) -> None:
        self._counts = counts
        self._suggested = False
        self._readmit_ms = 0

    def look(self, replication: ReplicationNode, now: Now, *, chosen: bool) -> None:
        """Pass on whether the oracle has chosen this node."""
        # Who is chosen instead will ask for the lead; until then there is nobody better.
        suggested = chosen or (self._suggested and _is_followed(replication, now))
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

        `all_have_met` = whether all other voters know the folder that a node has now.
        """
        leader = replication.leader
        if leader is None or now.boot_ms < self._readmit_ms:
            return
        self._readmit_ms = now.boot_ms + READMIT_EVERY_MS
        for peer, one in leader.progress.items():
            learns = not one.counts and not one.voter
            if learns and all_have_met(peer) and replication.readmit(peer):
                log.warning("node %d holds the log and may be counted as a voter", peer)


def _is_followed(replication: ReplicationNode, now: Now) -> bool:
    """Whether this node leads, and a majority has answered a moment ago."""
    leader = replication.leader
    age_ms = None if leader is None else leader.gate.age_ms(now.boot_ms)
    return age_ms is not None and age_ms < FOLLOWED_MS

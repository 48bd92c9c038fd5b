"""A planned hand-over, on the leader that hands over.

    paused    no appends, and the tick stays; messages that are committed and due by it go out
    ready     log end = commit = position of the tick; target and a majority have both
    given     TAKEOVER was sent: this leader never dispatches in its epoch again
    over      a higher epoch has begun

Until TAKEOVER is sent the leader may resume. Afterwards it may not, whatever happens to the target:
it has to begin a new epoch.
"""

from __future__ import annotations

from delaylog.replication.disk import ReplicaLog
from delaylog.replication.leading.leader import Leader
from delaylog.replication.messages import Takeover


class Handover:
    """One planned hand-over."""

    def __init__(self, target: int, *, deadline_ms: int) -> None:
        self.target = target
        self.deadline_ms = deadline_ms
        self.given = False

    def ready(self, leader: Leader, log: ReplicaLog) -> bool:
        """Whether the target can go on without a gap and without a repeated hand-out."""
        end = log.end
        if not (end == leader.commit == leader.order.tick.position):
            return False
        one = leader.progress[self.target]
        if not (one.counts and one.match == end and leader.has_tick(self.target)):
            return False
        voters = [peer for peer, other in leader.progress.items() if other.counts]
        return leader.agree(filter(leader.has_tick, voters))

    def give(self, leader: Leader, log: ReplicaLog) -> Takeover:
        """The TAKEOVER for the target; from here on this leader cannot resume its epoch."""
        self.given = True
        return Takeover(leader.epoch, log.end, leader.order.tick)

    def may_resume(self) -> bool:
        """Whether the leader may resume its epoch after the deadline."""
        return not self.given

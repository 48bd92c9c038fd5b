"""A planned hand-over, seen from the leader that wants to go.

    holding   no intake, no advance of the tick; what is committed and due by it still goes out
    ready     log end = commit = position of the tick; target and a majority have both
    given     TAKEOVER was sent: this leader never dispatches in its epoch again
    over      a higher epoch has come

Until TAKEOVER is sent the leader may change its mind and go on. Afterwards it may not, whatever
happens to the target: the way back is a new epoch of its own.
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
        """Whether the target can go on without a gap or a repeat."""
        end = log.end
        if not (end == leader.commit == leader.order.tick.position):
            return False
        one = leader.progress[self.target]
        if not (one.counts and one.match == end and leader.has_tick(self.target)):
            return False
        voters = [peer for peer, other in leader.progress.items() if other.counts]
        return leader.agree(filter(leader.has_tick, voters))

    def give(self, leader: Leader, log: ReplicaLog) -> Takeover:
        """The word to the target; from here on there is no way back into this epoch."""
        self.given = True
        return Takeover(leader.epoch, log.end, leader.order.tick)

    def may_resume(self) -> bool:
        """Whether the leader may go on in its epoch when the deadline has passed."""
        return not self.given

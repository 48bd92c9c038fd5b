"""The rights of a node that leads: to append changes, to hand out, to hand over.

`Leader` ships and counts. This module decides when the leader serves, and how a planned hand-over
withdraws its rights one after the other. A node that does not lead has no rights.
"""

from __future__ import annotations

from delaylog.replication.configuration import Configuration
from delaylog.replication.disk import ReplicaLog
from delaylog.replication.errors import ChangeRefusedError
from delaylog.replication.events import HandoverFailed, Serving, SteppedDown
from delaylog.replication.leading.leader import Leader
from delaylog.replication.messages import Takeover
from delaylog.replication.replica import Replica
from delaylog.replication.timing import Now

# A planned hand-over, on the leader that hands over.
#
#     paused    no appends, and the tick stays; messages that are committed and due by it go out
#     ready     log end = commit = position of the tick; target and a majority have both
#     given     TAKEOVER was sent: this leader never dispatches in its epoch again
#     over      a higher epoch has begun
#
# Until TAKEOVER is sent the leader may resume. Afterwards it may not, whatever happens to the
# target: it has to begin a new epoch.


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


class Leadership:
    """The leadership of one node, if it has one."""

    def __init__(self, replica: Replica) -> None:
        self._log = replica.log
        self._timing = replica.timing
        self._send = replica.send
        self._tell = replica.tell
        self.leader: Leader | None = None
        self.busy = False
        """Whether rounds are frequent, as a message is due soon or waits to be handed out."""
        self._handover: Handover | None = None
        self._announced = False
        self._renewal_ms: int | None = None
        """Since when a new epoch is wanted: the time of the round before."""
        self._change: Configuration | None = None
        """The configuration for that epoch, if it is another one."""

    # ------------------------------------------------------------------ rights

    @property
    def serving(self) -> bool:
        """Whether it leads and its EPOCH_BEGIN is committed."""
        return self.leader is not None and self.leader.serving

    def may_append(self) -> bool:
        """Whether changes of clients are taken: not during a hand-over or before a new epoch."""
        return self.serving and self._handover is None and not self.wants_renewal()

    def wants_renewal(self) -> bool:
        """Whether this leader has to begin a new epoch: to change members, or to count a voter."""
        leader = self.leader
        if leader is None or not leader.serving:
            return False
        return self._change is not None or leader.wants_renewal()

    def may_renew(self, now: Now) -> bool:
        """Whether that epoch may begin now: once all appended frames are committed, so that the
        engine can keep what it has applied; or one round later, since the commit may need the voter
        that does not count yet.
        """
        leader = self.leader
        if leader is None or self._renewal_ms is None:
            return False
        waited_ms = now.boot_ms - self._renewal_ms
        return leader.commit == self._log.end or waited_ms >= self._timing.round_ms

    def may_dispatch(self, now: Now) -> bool:
        """Whether messages may be handed out at this moment; called just before each batch."""
        leader = self.leader
        if leader is None or not leader.serving:
            return False
        return not self.has_given and leader.gate.is_open(now.boot_ms)

    # ------------------------------------------------------------------ life

    def begin(self, leader: Leader, now: Now) -> None:
        """Begin to lead: EPOCH_BEGIN is in the log, so ship it."""
        assert self.leader is None, "one leadership at a time"
        self.leader = leader
        self._announced = False
        self._renewal_ms = None
        self._change = None
        leader.send_round(now.boot_ms)
        leader.note_durable()

    def end(self) -> int:
        """Stop leading; returns the commit position (0 without a leadership)."""
        leader = self.leader
        self.leader = self._handover = None
        if leader is None:
            return 0
        self._tell(SteppedDown(leader.epoch, leader.commit))
        return leader.commit

    def note_progress(self, now: Now) -> bool:
        """Frames or a tick were acknowledged. Returns whether the node serves from now on."""
        leader = self.leader
        if leader is None or not leader.serving:
            return False
        first = not self._announced
        if first:
            self._announced = True
            self._tell(Serving(leader.epoch, leader.order.tick))
            if leader.configuration.changing:
                self._change = leader.configuration.settled()
            # The gate opens once a majority has taken the first tick.
            leader.send_round(now.boot_ms)
        handover = self._handover
        if handover is not None and not handover.given and handover.ready(leader, self._log):
            self._send(handover.target, handover.give(leader, self._log))
        return first

    def round_due_ms(self) -> int | None:
        """When the next round has to be sent; None without a leadership."""
        if self.leader is None:
            return None
        every_ms = self._timing.busy_round_ms if self.busy else self._timing.round_ms
        return self.leader.round_ms + every_ms

    def send_round(self, now: Now) -> None:
        """Send a round to all nodes."""
        assert self.leader is not None, "only a leader has rounds"
        if self._renewal_ms is None and self.wants_renewal():
            self._renewal_ms = self.leader.round_ms
        self.leader.send_round(now.boot_ms)
        if self._handover is not None and self.has_given:
            self._send(self._handover.target, self._handover.give(self.leader, self._log))

    # ------------------------------------------------------------------ changes of members

    def change(self, configuration: Configuration) -> None:
        """Begin the next epoch with another configuration, made from the present one.

        Raises ChangeRefusedError. The request is lost if the leadership ends: the version of the
        configuration shows whether the change was made.
        """
        leader = self.leader
        if leader is None or not self.may_append() or self._change is not None:
            raise ChangeRefusedError("this node does not lead now, or another change is requested")
        if (
            leader.configuration.changing
            or configuration.version != leader.configuration.version + 1
        ):
            raise ChangeRefusedError("another change is in progress")
        if not leader.is_voter(configuration):
            raise ChangeRefusedError("the leader stays a voter: hand over first, then remove it")
        for peer in set(configuration.voters) - set(leader.configuration.voters):
            if not leader.may_vote(peer):
                raise ChangeRefusedError(f"node {peer} does not have the whole log yet")
        self._change = configuration

    def take_change(self) -> Configuration | None:
        """The configuration for the next epoch, if it is another one; once."""
        change, self._change = self._change, None
        return change

    # ------------------------------------------------------------------ handing over

    def hand_over(self, target: int, now: Now) -> bool:
        """Begin a planned hand-over; False if this node does not serve, or does so already."""
        leader = self.leader
        if leader is None or not self.may_append():
            return False
        if target not in leader.progress or target not in leader.configuration.voters:
            return False
        deadline_ms = now.boot_ms + self._timing.handover_deadline_ms
        self._handover = Handover(target, deadline_ms=deadline_ms)
        return True

    @property
    def hands_over(self) -> bool:
        """Whether a hand-over is in progress."""
        return self._handover is not None

    @property
    def has_given(self) -> bool:
        """Whether TAKEOVER was sent, so that this leader must not dispatch in its epoch again."""
        return self._handover is not None and self._handover.given

    def deadline_ms(self) -> int | None:
        """The deadline of the hand-over; None without one."""
        return None if self._handover is None else self._handover.deadline_ms

    def give_up_handover(self) -> bool:
        """The deadline has passed without a higher epoch. Returns whether this epoch goes on."""
        handover = self._handover
        assert handover is not None, "there is one to give up"
        resumes = handover.may_resume()
        self._handover = None
        self._tell(HandoverFailed(handover.target, resumes))
        return resumes

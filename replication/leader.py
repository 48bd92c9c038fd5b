"""The leader: ships its log, learns what is durable on other nodes, and so what is committed.

Its epoch begins with an EPOCH_BEGIN frame. Nothing is committed until that frame is durable on a
majority, which commits all frames before it too. Frames of older epochs are never committed by
counting alone, since a later leader could still drop them. Once EPOCH_BEGIN is committed, the
leader serves.

`Leader` ships and counts. `Leadership` has the rights of a node that leads (to append changes, to
hand out, to hand over): it decides when the leader serves, and how a planned hand-over withdraws
its rights one after the other. A node that does not lead has no rights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final

from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import NO_TICK, EpochTick, common_end
from delaylog.replication.errors import ChangeRefusedError, PeerError
from delaylog.replication.messages import (
    Ack,
    Append,
    HandoverFailed,
    Readmit,
    Reject,
    Serving,
    SteppedDown,
    Takeover,
)
from delaylog.replication.replica import Now, Replica, ReplicaLog
from delaylog.storage.errors import DiskFullError

# ----------------------------------------------------------------------------- ships and counts

# The gate: a leader dispatches only while a majority has followed it recently.
#
# Every round of a leader carries its tick. The gate is open for 50 ms after the newest round whose
# tick a majority has taken was sent, by a clock that runs while the process is stopped. Every later
# leader gets the tick of such a majority, so a hand-out that a successor's tick does not cover
# happened in those 50 ms. No two clocks are compared, and the gate of a leader that is stopped or
# partitioned closes by itself.

ROUNDS_REMEMBERED: Final = 64
"""An answer to an older round is too late to open the gate: 64 rounds of 10 ms are 640 ms."""


class Gate:
    """Numbers the rounds of one leadership, and records which voter took which tick."""

    def __init__(self, node: int, configuration: Configuration, gate_ms: int) -> None:
        """`node` leads."""
        self._node = node
        self._configuration = configuration
        self._gate_ms = gate_ms
        self._sent_ms: dict[int, int] = {}
        self._taken_ms: dict[int, int] = {}
        self._alone = len(configuration.deciding) == 1
        self.seq = 0
        """Number of the newest round."""
        self.stored = True
        """Whether the leader's own disk has the present tick, so that it counts."""

    def begin_round(self, now_ms: int) -> int:
        """A round goes out now; returns its number."""
        self.seq += 1
        self._sent_ms[self.seq] = now_ms
        self._sent_ms.pop(self.seq - ROUNDS_REMEMBERED, None)
        return self.seq

    def take(self, peer: int, seq: int) -> None:
        """A voter has taken the tick of a round."""
        sent_ms = self._sent_ms.get(seq)
        if sent_ms is not None:
            self._taken_ms[peer] = max(sent_ms, self._taken_ms.get(peer, sent_ms))

    def forget(self, peer: int) -> None:
        """Do not count this peer any more."""
        self._taken_ms.pop(peer, None)

    def age_ms(self, now_ms: int) -> int | None:
        """The age of the newest round whose tick a majority took; None without one."""
        # Of a leader without other voters no successor has an older tick.
        mine = {self._node: now_ms} if self.stored or self._alone else {}
        taken_ms = self._configuration.reached(mine | self._taken_ms)
        return None if taken_ms is None else now_ms - taken_ms

    def open_until_ms(self, now_ms: int) -> int:
        """When the gate closes if no further tick is taken, by the same clock; 0 = it is shut."""
        age_ms = self.age_ms(now_ms)
        return 0 if age_ms is None else now_ms - age_ms + self._gate_ms

    def is_open(self, now_ms: int) -> bool:
        """Whether messages may be handed out at this moment."""
        age_ms = self.age_ms(now_ms)
        return age_ms is not None and age_ms < self._gate_ms


# The order of dispatch on a serving leader: hand out, advance the tick, publish it.
#
# Two kinds of messages become due. Those that the wheel brings up: `begin`, hand them out,
# `finish`. And those that were already due by the tick when their frames were committed (they
# arrived late, or the previous leader did not reach them): `take` the frames, hand them out by the
# clock, `cover` them. A tick is published after the hand-outs that it covers, so a node that
# starts from it skips nothing.


class DispatchOrder:
    """The tick of one leadership."""

    def __init__(self, tick: EpochTick, publish: Callable[[EpochTick], None]) -> None:
        self._publish = publish
        self.tick = tick
        """The tick that was published last."""
        self.looked = tick.position
        """The end of the frames that `take` has returned."""
        self._step: tuple[int, int] | None = None

    def take(self, commit: int) -> tuple[int, int]:
        """The frames that were committed since the last call: (first position, end).

        The caller hands out those that are due by the tick, and puts the rest into the wheel.
        """
        start, self.looked = self.looked, max(self.looked, commit)
        return start, self.looked

    def begin(self, second: int, local_index: int) -> None:
        """The caller is about to hand out what is due by this position of the wheel."""
        assert (second, local_index) >= (self.tick.second, self.tick.local_index), "never back"
        self._step = (second, local_index)

    def finish(self, wall_ms: int) -> None:
        """It was handed out: advance the tick."""
        assert self._step is not None, "begin() comes first"
        second, local_index = self._step
        self._step = None
        tick = self.tick._replace(second=second, local_index=local_index, wall_ms=wall_ms)
        self._put(tick)

    def cover(self, position: int) -> None:
        """Everything before `position` that is due by the tick was handed out."""
        assert position <= self.looked, "frames are taken first"
        if position > self.tick.position:
            self._put(self.tick._replace(position=position))

    def _put(self, tick: EpochTick) -> None:
        self.tick = tick
        self._publish(tick)


class Acks(Enum):
    """How safe a send has to be before it is answered."""

    LEADER = "leader"
    """On the leader's disk; lost if that disk is lost before other nodes have it."""
    QUORUM = "quorum"
    """On a majority's disks: in the log of every later leader."""
    ALL = "all"
    """On the disks of all voters."""


@dataclass(slots=True)
class Progress:
    """The progress of one other node in this epoch, as the leader knows it."""

    next: int
    """Position of the next frames to ship."""
    match: int = 0
    """Its log durably equals this one up to here."""
    seq: int = 0
    """The newest round whose tick it has taken."""
    short_seq: int = 0
    """The newest round that was sent to it while it lacked urgent frames."""
    known: bool = False
    """Whether it has answered; until then it gets one message a round."""
    counts: bool = True
    """Whether it counts for majorities. A node that was a learner in this epoch does not."""
    voter: bool = True
    """Whether it last stated that it is a voter."""
    learner_seq: int = 0
    """The newest round when it first answered as a learner, or when it last reconnected since: it
    may have voted for another node in between and then lost its disk."""
    behind: bool = False
    """Whether it needs frames from before this log's first position."""
    moved_ms: int = 0
    """When an acknowledgement last showed that log or a round has arrived there. Messages of one
    connection keep their order and each connection begins with the frames that lack, so a round
    arrives behind the frames before it: an open connection that loses them moves nothing.
    """


class Leader:
    """One leadership."""

    def __init__(
        self, replica: Replica, configuration: Configuration, tick: EpochTick, now_ms: int
    ) -> None:
        """The log ends with the EPOCH_BEGIN frame of the tick's epoch."""
        self._node = node = replica.node
        self.configuration = configuration
        self._log = log = replica.log
        self._ticks = replica.ticks
        self._timing = timing = replica.timing
        self._send = replica.send
        self.epoch = tick.epoch
        assert log.epochs.last_epoch == self.epoch, "its EPOCH_BEGIN is in the log"
        self.begin_start = log.epochs.entries()[-1][1]
        self.begin_end = log.end
        self.commit = 0
        self.gate = Gate(node, configuration, timing.gate_ms)
        self.order = DispatchOrder(tick, self._publish)
        self._tick_seq = 0
        """The first round that carries the present tick."""
        self._urgent_end = 0
        """End of the newest urgent frame."""
        self.round_ms = 0
        """When the newest round was sent; the first one is sent at once."""
        self.progress = {
            peer: Progress(self.begin_start, counts=peer in configuration.deciding, moved_ms=now_ms)
            for peer in configuration.others(node)
        }

    @property
    def serving(self) -> bool:
        """Whether its EPOCH_BEGIN is committed."""
        return self.commit >= self.begin_end

    # ------------------------------------------------------------------ shipping

    def send_round(self, now_ms: int) -> None:
        """Send the tick and the commit position to all nodes, with the frames that they lack."""
        if not self.gate.stored:
            with suppress(DiskFullError):
                self._store_tick()
        self.gate.begin_round(now_ms)
        self.round_ms = now_ms
        for peer, one in self.progress.items():
            if not self.ship(peer):
                self._send_append(peer, b"")
            if one.next < self._urgent_end:
                one.short_seq = self.gate.seq

    def ship_all(self, *, at_once: bool = False) -> None:
        """Ship new frames to all nodes that have answered.

        A node that has not synced its last frames gets new ones together once it has, as a group
        commit. Urgent frames (`at_once`) are sent at once, as far as the window allows: they record
        hand-outs. A round opens the gate only through nodes that were sent all urgent frames before
        it, so a successor that knows its tick has these frames too.
        """
        if at_once:
            self._urgent_end = self._log.end
        for peer, one in self.progress.items():
            if one.known and (at_once or self._wants_more(one)):
                self.ship(peer)

    def _wants_more(self, one: Progress) -> bool:
        """Whether a peer has synced all that it got, or a full message waits for it."""
        many = self._log.end - one.next >= self._timing.append_bytes_max
        return many or one.match >= one.next

    def ship(self, peer: int) -> bool:
        """Send a peer what it lacks, as far as its window allows; False if nothing was sent."""
        one, log = self.progress[peer], self._log
        if one.next < log.first_position:
            # The peer will reject the next round, which shows that it needs a copy.
            one.next = log.end
            return False
        sent = False
        while one.next < log.end and one.next - one.match < self._timing.window_bytes_max:
            if sent and not one.known:
                break
            data = log.read(one.next, self._timing.append_bytes_max)
            if not data:
                # Another thread has removed it meanwhile: as above.
                one.next = log.end
                break
            self._send_append(peer, data)
            one.next += len(data)
            sent = True
        return sent

    def _send_append(self, peer: int, data: bytes | memoryview) -> None:
        prev = self.progress[peer].next
        tick = self.order.tick if self.serving else NO_TICK
        prev_epoch = self._log.epochs.before(prev)
        self._send(
            peer, Append(self.epoch, prev, prev_epoch, self.commit, self.gate.seq, tick, data)
        )

    # ------------------------------------------------------------------ answers

    def take_ack(self, source: int, message: Ack, now_ms: int) -> None:
        """A peer has acknowledged durable frames and a tick. Raises PeerError."""
        if message.end > self._log.end or message.seq > self.gate.seq:
            raise PeerError(f"node {source} acknowledges what was never sent")
        one = self._hear(source, voter=message.voter)
        one.behind = False
        if message.end > one.match or message.seq > one.seq:
            one.moved_ms = now_ms
        one.match = max(one.match, message.end)
        one.next = max(one.next, one.match)
        one.seq = max(one.seq, message.seq)
        if one.counts and message.seq > one.short_seq:
            self.gate.take(source, message.seq)
        self.note_durable()
        if self._wants_more(one):
            self.ship(source)

    def take_reject(self, source: int, message: Reject) -> bool:
        """A peer's log differs before the frames that were sent: go on from the common prefix.

        Returns whether it is found now that only a copy helps.
        """
        one = self._hear(source, voter=message.voter)
        mine = self._log.epochs.entries()
        shared = common_end(mine, self._log.end, message.table, message.end)
        if not one.counts:
            # It may have lost its disk, and what it has acknowledged.
            one.match = min(one.match, shared or 0)
        if shared is None or shared < self._log.first_position:
            first, one.behind = not one.behind, True
            one.next = self._log.end
            return first
        one.behind = False
        one.next = max(one.match, shared)
        self.ship(source)
        return False

    def _hear(self, source: int, *, voter: bool) -> Progress:
        one = self.progress[source]
        one.known = True
        one.voter = voter
        if one.counts and not voter:
            one.counts = False
            one.learner_seq = self.gate.seq
            one.match = 0
            self.gate.forget(source)
        return one

    def reconnect(self, peer: int) -> None:
        """A peer has reconnected: frames on their way to it may be lost."""
        one = self.progress[peer]
        one.known = False
        one.next = one.match or self.begin_start
        if not one.counts:
            one.learner_seq = self.gate.seq

    # ------------------------------------------------------------------ commit

    def note_durable(self) -> None:
        """More is durable here or elsewhere: update the commit position."""
        ends = {peer: one.match for peer, one in self.progress.items() if one.counts}
        reached = self.configuration.reached({self._node: self._log.durable_end, **ends})
        if reached is not None and reached > self.commit and self._may_commit(reached):
            self.commit = reached

    def is_cut(self, now_ms: int) -> bool:
        """Whether no majority has acknowledged anything for `stalled_ms`, so it cannot commit."""
        moved = {peer: one.moved_ms for peer, one in self.progress.items() if one.counts}
        moved_ms = self.configuration.reached({self._node: now_ms, **moved})
        return moved_ms is None or now_ms - moved_ms >= self._timing.stalled_ms

    def agree(self, peers: Iterable[int]) -> bool:
        """Whether these nodes and this one are a majority."""
        return self.configuration.agree([self._node, *peers])

    def _may_commit(self, position: int) -> bool:
        """Only frames of this epoch are committed by counting, and commit older ones with them."""
        return position >= self.begin_end

    def safe_end(self, acks: Acks) -> int:
        """The end of the part of the log that is as safe as `acks` requires."""
        own = self._log.durable_end
        if acks is Acks.QUORUM or not self.serving:
            return self.commit
        if acks is Acks.LEADER:
            return max(own, self.commit)
        voters = (one.match for one in self.progress.values() if one.counts)
        return min([self.commit, own, *voters])

    # ------------------------------------------------------------------ the tick

    def _publish(self, tick: EpochTick) -> None:
        assert tick.position <= self.commit, "a tick covers committed frames only"
        # First: there may be no space for it, and it is the present one all the same.
        self._tick_seq = self.gate.seq + 1
        self.gate.stored = False
        self._store_tick()

    def _store_tick(self) -> None:
        self._ticks.write(self.order.tick)
        self.gate.stored = True

    def tick_is_safe(self) -> bool:
        """Whether a majority has taken the present tick."""
        have = [peer for peer, one in self.progress.items() if one.counts and self.has_tick(peer)]
        return self.configuration.agree([self._node, *have] if self.gate.stored else have)

    def has_tick(self, peer: int) -> bool:
        """Whether a peer has taken the present tick."""
        return self.progress[peer].seq >= self._tick_seq

    # ------------------------------------------------------------------ learners

    def may_readmit(self, peer: int) -> bool:
        """Whether a learner may count again, from the next epoch on.

        It may have forgotten a promise, so every other voter must have taken a tick of this epoch
        since the learner came back: then none of them is an older candidate that has the promise.
        And it must have all committed frames, as its acknowledgements may have committed them.

        A learner of the configuration needs less: its promises as a voter were for epochs below
        the one whose configuration made it a learner, or for epochs above this one. The latter is
        excluded once a majority has taken a tick of this epoch since the learner came back: no
        later epoch, which could count the learner, had begun by then.
        """
        one = self.progress.get(peer)
        if one is None or one.counts or not self.serving:
            return False
        if peer in self.configuration.learners:
            return self._follows(one) and self.agree(
                node
                for node, other in self.progress.items()
                if other.counts and other.seq > one.learner_seq
            )
        if one.match < self.commit:
            return False
        others = [other for node, other in self.progress.items() if node != peer and other.counts]
        return all(
            other.seq > one.learner_seq and other.match >= self.begin_end for other in others
        )

    def is_voter(self, configuration: Configuration) -> bool:
        """Whether this node could lead with this configuration."""
        return self._node in configuration.voters

    def may_vote(self, peer: int) -> bool:
        """Whether a learner may become a voter: it can promise, and has nearly the whole log.

        The rest is on a majority of the voters before the change, which is needed for the change.
        So a learner with a slow disk can be promoted under load.
        """
        one = self.progress.get(peer)
        return one is not None and one.known and one.voter and self._follows(one)

    def _follows(self, one: Progress) -> bool:
        """Whether what a learner lacks fits one message, and so may be on its way to it."""
        lacks = self.commit - one.match
        return self.serving and not one.behind and lacks <= self._timing.append_bytes_max

    def wants_renewal(self) -> bool:
        """Whether a readmitted voter waits for the next epoch to count again."""
        return any(
            self.progress[peer].voter and not self.progress[peer].counts
            for peer in self.configuration.deciding
            if peer != self._node
        )

    def readmit(self, peer: int) -> bool:
        """Readmit a learner as a voter; False if that is not safe yet."""
        if not self.may_readmit(peer):
            return False
        end = min(self.commit, self.progress[peer].match)
        self._send(peer, Readmit(self.epoch, end))
        return True


# --------------------------------------------------------------------------------------- rights

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
        return leader.tick_is_safe()

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

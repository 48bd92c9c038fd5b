"""One node of a cluster: follows, becomes leader, leads and hands over.

A synchronous state machine. Messages, times and the oracle's suggestions come in; messages and
events go out, which the host takes when the call has returned. Safety depends on the promise: a
node that has promised an epoch answers no lower one, across every kind of crash.

    FOLLOWER -> PREPARING -> ADOPTING -> BEGINNING -> SERVING
        ^-----------------------------------------------| a higher epoch, or the oracle's decision
"""

from __future__ import annotations

from random import Random

from delaylog.replication.campaign import Campaign, Candidate, Change, Voter
from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import EpochTick, epoch_node
from delaylog.replication.errors import LostCommitError, PeerError
from delaylog.replication.follower import Follower
from delaylog.replication.leader import Leader, Leadership
from delaylog.replication.messages import (
    Ack,
    Append,
    Event,
    Fetch,
    Fetched,
    Message,
    Nack,
    NeedsCopy,
    Prepare,
    Promise,
    Readmit,
    Readmitted,
    Reject,
    Role,
    Takeover,
    TakeoverAsked,
    Truncated,
)
from delaylog.replication.replica import MetaStore, Now, Replica, ReplicaLog, TickStore, Timing


class ReplicationNode:
    """The replication of one data folder."""

    def __init__(
        self,
        *,
        log: ReplicaLog,
        meta: MetaStore,
        ticks: TickStore,
        random: Random,
        timing: Timing | None = None,
        commit: int = 0,
    ) -> None:
        """`commit` = the end of the log that is known to be committed, such as by a checkpoint."""
        self._log = log
        self._meta = meta
        self._ticks = ticks
        self.timing = timing or Timing()
        self.node = meta.meta.node_id
        self._founding = meta.meta.founding()
        self._messages: list[tuple[int, Message]] = []
        self._events: list[Event] = []
        self._replica = replica = Replica(
            self.node, log, ticks, self.timing, self._send, self._tell, self._cut_log
        )
        self._voter = Voter(replica, meta)
        self._follower = Follower(replica, voter=meta.meta.voter)
        self._follower.commit = commit
        self._campaign = Campaign(
            replica, lambda: self.configuration, self._voter, random=random, begin=self._begin
        )
        self.leadership = Leadership(replica)
        """The rights of this node as the leader."""

    # ------------------------------------------------------------------ state

    @property
    def role(self) -> Role:
        """The present role."""
        if self.leader is not None:
            return Role.SERVING if self.leader.serving else Role.BEGINNING
        if self._campaign.candidate is not None:
            return Role.ADOPTING if self._campaign.candidate.adopting else Role.PREPARING
        return Role.FOLLOWER

    @property
    def configuration(self) -> Configuration:
        """The newest configuration in its log, committed or not, which is in force."""
        return self._log.epochs.configuration or self._founding

    @property
    def promised(self) -> int:
        """The promised epoch: it answers no lower one."""
        return self._voter.promised

    @property
    def votes(self) -> bool:
        """Whether it votes; a learner only replicates."""
        return self._meta.meta.voter

    @property
    def may_lead(self) -> bool:
        """Whether it votes, and is a voter in the newest configuration of its log."""
        return self.votes and self.node in self.configuration.voters

    @property
    def leader(self) -> Leader | None:
        """The present leadership of this node, if it leads."""
        return self.leadership.leader

    @property
    def commit(self) -> int:
        """End of the log that is known to be committed; never falls in one process."""
        leader, known = self.leader, self._follower.commit
        return known if leader is None else max(known, leader.commit)

    # ------------------------------------------------------------------ serving

    def note_appended(self, *, at_once: bool = False) -> None:
        """The engine of this leader has appended frames: ship them; urgent ones `at_once`."""
        if self.leader is not None:
            self.leader.ship_all(at_once=at_once)

    def note_durable(self, now: Now) -> None:
        """The log was synced."""
        self._voter.pay()
        if self.leader is not None:
            self.leader.note_durable()
            self._note_progress(now)
        elif self._campaign.candidate is None and self._follower.epoch == self.promised:
            self._follower.note_durable()

    # ------------------------------------------------------------------ the oracle

    def suggest_leader(self, now: Now, *, at_once: bool = False) -> None:
        """The oracle suggests this node as the leader; idempotent.

        `at_once` = try now, whichever node has precedence.
        """
        if not self.votes:
            return
        if at_once:
            self._campaign.be_asked()
        if self._campaign.want(now) and self.role == Role.FOLLOWER:
            if at_once or not self._campaign.waits:
                self._campaign.stand(now)

    def unsuggest_leader(self) -> None:
        """The oracle suggests another node. The promise does not change."""
        self._campaign.drop()
        self._step_down()

    def renew(self, now: Now) -> None:
        """Begin a new epoch as the present leader, to count a readmitted voter or change members.

        A serving leader does this by itself when it is needed.
        """
        leader = self.leader
        if leader is not None and not self.leadership.hands_over:
            change = self.leadership.take_change()
            self._step_down()
            self._campaign.stand(now, None if change is None else Change(leader.epoch, change))

    def hand_over(self, target: int, now: Now) -> bool:
        """Begin a planned hand-over; False if this node does not serve, or does so already."""
        begun = self.leadership.hand_over(target, now)
        self._note_progress(now)
        return begun

    def readmit(self, learner: int) -> bool:
        """Readmit a learner as a voter; False if that is not safe yet."""
        return self.leader is not None and self.leader.readmit(learner)

    # ------------------------------------------------------------------ time

    def next_timer_ms(self) -> int | None:
        """When `timer` has something to do, by the boot clock; None if never."""
        times = self._campaign.next_timer_ms()
        for at_ms in (self.leadership.round_due_ms(), self.leadership.deadline_ms()):
            if at_ms is not None:
                times.append(at_ms)
        return min(times, default=None)

    def timer(self, now: Now) -> None:
        """Do what is due by now."""
        if self._campaign.late(now):
            self._step_down()
            self._campaign.resign(now)
        deadline_ms = self.leadership.deadline_ms()
        if deadline_ms is not None and now.boot_ms >= deadline_ms:
            if not self.leadership.give_up_handover():
                self._step_down()
                self._campaign.be_asked()
                self._campaign.stand(now)
        round_ms = self.leadership.round_due_ms()
        if round_ms is None:
            self._campaign.timer(now)
        elif now.boot_ms >= round_ms:
            self.leadership.send_round(now)
            self._note_progress(now)
            if self.leadership.may_renew(now):
                self.renew(now)

    def reconnect(self, peer: int) -> None:
        """A peer has reconnected: messages on the old connection may be lost."""
        if self.leader is not None and peer in self.leader.progress:
            self.leader.reconnect(peer)

    # ------------------------------------------------------------------ messages

    def receive(self, source: int, message: Message, now: Now) -> None:
        """A message came. Raises PeerError for one that no correct peer sends."""
        if source == self.node:
            raise PeerError(f"node {source} is this one")
        if source in self.configuration.removed and isinstance(message, Prepare | Nack):
            # Candidacies of a removed node are ignored. If it has begun an epoch, it was added
            # again, and this node is behind: other messages are taken.
            return
        match message:
            case Append():
                self._on_append(source, message, now)
            case Ack():
                self._on_ack(source, message, now)
            case Reject():
                self._on_reject(source, message)
            case Prepare():
                self._on_prepare(source, message, now)
            case Promise():
                self._campaign.take_promise(source, message, now)
            case Nack():
                self._on_nack(message, now)
            case Fetch():
                self._voter.fetch(source, message)
            case Fetched():
                self._campaign.take_fetched(source, message, now)
            case Takeover():
                self._on_takeover(message, now)
            case Readmit():
                self._on_readmit(message)
            case _:
                kind = type(message).__name__
                raise PeerError(f"{kind} from node {source} is not a message of replication")

    def take_messages(self) -> list[tuple[int, Message]]:
        """(receiver, message) to send now, oldest first."""
        out, self._messages = self._messages, []
        return out

    def take_events(self) -> list[Event]:
        """What happened since the last call, oldest first."""
        out, self._events = self._events, []
        return out

    def _send(self, target: int, message: Message) -> None:
        self._messages.append((target, message))

    def _tell(self, event: Event) -> None:
        self._events.append(event)

    def accept_tick(self, tick: EpochTick) -> None:
        """The leader's tick came outside of a round, such as in the oracle's heartbeat. It does not
        open the gate: only answers to rounds do.
        """
        if self.leader is None and tick.epoch == self.promised:
            self._follower.note_tick(tick)

    def _check_owner(self, source: int, epoch: int) -> None:
        """Raise PeerError unless the source is the owner of the epoch."""
        if epoch_node(epoch) != source:
            raise PeerError(f"node {source} sends for epoch {epoch:#x}, which is not its own")

    def _on_prepare(self, source: int, message: Prepare, now: Now) -> None:
        self._check_owner(source, message.epoch)
        if not self.votes:
            return
        if self._voter.may_promise(message.epoch):
            self._voter.promise(message.epoch)
            given = self.leadership.has_given
            self._step_down()
            if given:
                # The oracle may suggest this node for a while after it has handed over.
                self._campaign.stay_out(now)
            else:
                self._campaign.give_way(now)
        elif message.epoch != self.promised:
            self._send(source, Nack(message.epoch, self.promised))
            return
        elif self._log.epochs.last_epoch >= message.epoch:
            return
        self._voter.owe(source, message.epoch)

    def _on_nack(self, message: Nack, now: Now) -> None:
        refused = self._campaign.refuse(message)
        if self.leader is not None:
            refused = self.leader.epoch == message.epoch < message.promised
        if refused:
            self._step_down()
            self._campaign.back_off(now)

    # ------------------------------------------------------------------ leading

    def _begin(self, candidate: Candidate, now: Now) -> None:
        """The candidate's log is complete: begin the epoch in it and ship it."""
        tick = candidate.tick()._replace(epoch=candidate.epoch, wall_ms=now.wall_ms)
        self._campaign.candidate = None
        configuration = candidate.begins_with(self._log.epochs.last_epoch, self.configuration)
        self._log.append_begin(tick, now.wall_ms, configuration)
        self._ticks.write(tick)
        leader = Leader(self._replica, configuration, tick, now.boot_ms)
        self.leadership.begin(leader, now)
        self._note_progress(now)

    def _note_progress(self, now: Now) -> None:
        if self.leadership.note_progress(now):
            self._campaign.succeeded()

    def _step_down(self) -> None:
        """Stop leading; the commit position stays."""
        self._follower.commit = max(self._follower.commit, self.leadership.end())

    def _on_ack(self, source: int, message: Ack, now: Now) -> None:
        leader = self.leader
        if leader is not None and leader.epoch == message.epoch and source in leader.progress:
            leader.take_ack(source, message, now.boot_ms)
            self._note_progress(now)

    def _on_reject(self, source: int, message: Reject) -> None:
        leader = self.leader
        if leader is not None and leader.epoch == message.epoch and source in leader.progress:
            if leader.take_reject(source, message):
                self._tell(NeedsCopy(source))

    # ------------------------------------------------------------------ following

    def _on_append(self, source: int, message: Append, now: Now) -> None:
        self._check_owner(source, message.epoch)
        if not self._voter.follows(message.epoch):
            self._send(source, Nack(message.epoch, self.promised))
            return
        if message.epoch > self.promised:
            self._voter.promise(message.epoch)
        self._step_down()
        if message.epoch != self._follower.epoch:
            self._campaign.follow(now)
        self._voter.forget_owed()
        self._follower.append(source, message)

    def _cut_log(self, position: int) -> None:
        """Drop frames that the leader does not have. Raises LostCommitError for committed ones."""
        if position < self._follower.commit:
            commit = self._follower.commit
            raise LostCommitError(position=position, committed=commit, epoch=self.promised)
        self._log.cut(position)
        self._tell(Truncated(position))

    def _on_takeover(self, message: Takeover, now: Now) -> None:
        if self.promised != message.epoch or self.role != Role.FOLLOWER or not self.votes:
            return
        if self._follower.holds(message):
            self._campaign.be_asked()
            self._follower.take_over(message)
            self._tell(TakeoverAsked(message.epoch))
            self._campaign.stand(now)

    def _on_readmit(self, message: Readmit) -> None:
        follower = self._follower
        if self.votes or not self.promised == message.epoch == follower.epoch:
            return
        if min(follower.verified, self._log.durable_end) >= message.end:
            self._meta.save(self._meta.meta.readmitted())
            follower.voter = True
            self._tell(Readmitted(message.epoch))
            follower.acknowledge()

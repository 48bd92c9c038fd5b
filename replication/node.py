"""One node of a cluster: whom it follows, when it leads, and how it hands over.

A synchronous state machine. Messages, times and words of the oracle come in; messages and events
go out, and the host sends those when the call has returned. Everything rests on the promise: a node
that has promised an epoch answers nobody of a lower one, across every kind of crash.

    FOLLOWER -> PREPARING -> ADOPTING -> BEGINNING -> SERVING
        ^-----------------------------------------------| a higher epoch, or the oracle's word
"""

from __future__ import annotations

from random import Random

from delaylog.replication.configuration import Configuration
from delaylog.replication.disk import MetaStore, ReplicaLog, TickStore
from delaylog.replication.epochs import epoch_node
from delaylog.replication.errors import LostCommitError, PeerError
from delaylog.replication.events import (
    Event,
    NeedsCopy,
    Readmitted,
    Role,
    TakeoverAsked,
    Truncated,
)
from delaylog.replication.follower import Follower
from delaylog.replication.leading.campaign import Campaign
from delaylog.replication.leading.candidate import Candidate, Change
from delaylog.replication.leading.leader import Leader
from delaylog.replication.leading.leadership import Leadership
from delaylog.replication.messages import (
    Ack,
    Append,
    Fetch,
    Fetched,
    Message,
    Nack,
    Prepare,
    Promise,
    Readmit,
    Reject,
    Takeover,
)
from delaylog.replication.replica import Replica
from delaylog.replication.timing import Now, Timing
from delaylog.replication.voter import Voter
from delaylog.replication.watermark import EpochTick


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
        """`commit` = up to where the log is known to be committed, such as by a checkpoint."""
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
        """What this node may do because it leads."""

    # ------------------------------------------------------------------ standing

    @property
    def role(self) -> Role:
        """What it does at the moment."""
        if self.leader is not None:
            return Role.SERVING if self.leader.serving else Role.BEGINNING
        if self._campaign.candidate is not None:
            return Role.ADOPTING if self._campaign.candidate.adopting else Role.PREPARING
        return Role.FOLLOWER

    @property
    def configuration(self) -> Configuration:
        """The newest that its log holds, committed or not: what a leader or candidate goes by."""
        return self._log.epochs.configuration or self._founding

    @property
    def promised(self) -> int:
        """The epoch below which it answers nobody."""
        return self._voter.promised

    @property
    def votes(self) -> bool:
        """Whether it counts; a learner only replicates."""
        return self._meta.meta.voter

    @property
    def may_lead(self) -> bool:
        """Whether the newest configuration that its log holds lets it lead: it stays a voter."""
        return self.votes and self.node in self.configuration.voters

    @property
    def leader(self) -> Leader | None:
        """What it ships and counts, if it leads."""
        return self.leadership.leader

    @property
    def commit(self) -> int:
        """Up to where the log is known to be committed; never falls in one life."""
        leader, known = self.leader, self._follower.commit
        return known if leader is None else max(known, leader.commit)

    # ------------------------------------------------------------------ serving

    def note_appended(self, *, at_once: bool = False) -> None:
        """The engine of this leader has written frames: ship them, `at_once` or with others."""
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
        """The oracle wants this node to lead. Said again it does nothing.

        `at_once` = somebody insists: whose turn it is does not matter.
        """
        if not self.votes:
            return
        if at_once:
            self._campaign.be_asked()
        if self._campaign.want(now) and self.role == Role.FOLLOWER:
            if at_once or not self._campaign.waits:
                self._campaign.stand(now)

    def unsuggest_leader(self) -> None:
        """The oracle wants another one. What it has promised does not change."""
        self._campaign.drop()
        self._step_down()

    def renew(self, now: Now) -> None:
        """Begin a new epoch as the leader that it is: a readmitted learner counts from there, or
        other members do.

        A serving leader does so by itself once it has heard of such a voter, or of a change.
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
        """Let a learner vote again; False if that is not safe yet."""
        return self.leader is not None and self.leader.readmit(learner)

    # ------------------------------------------------------------------ time

    def next_timer_ms(self) -> int | None:
        """When `timer` has something to do, by the clock that never stops."""
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
        """A connection is new: what was under way on the old one may be lost."""
        if self.leader is not None and peer in self.leader.progress:
            self.leader.reconnect(peer)

    # ------------------------------------------------------------------ messages

    def receive(self, source: int, message: Message, now: Now) -> None:
        """A message came. Raises PeerError for one that no sound peer sends."""
        if source == self.node:
            raise PeerError(f"node {source} is this one")
        if source in self.configuration.removed and isinstance(message, Prepare | Nack):
            # It may stand as long as it likes. Whoever has begun an epoch was let in again, and
            # this node is behind.
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
                raise PeerError(f"{type(message).__name__} from node {source} is out of place")

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
        """The leader's tick came by another way, such as the oracle's heartbeat. It opens no gate:
        only what is answered to a round does.
        """
        if self.leader is None and tick.epoch == self.promised:
            self._follower.note_tick(tick)

    def _check_owner(self, source: int, epoch: int) -> None:
        """Only its own node speaks for an epoch."""
        if epoch_node(epoch) != source:
            raise PeerError(f"node {source} speaks for epoch {epoch:#x}, which is not its own")

    def _on_prepare(self, source: int, message: Prepare, now: Now) -> None:
        self._check_owner(source, message.epoch)
        if not self.votes:
            return
        if self._voter.may_promise(message.epoch):
            self._voter.promise(message.epoch)
            given = self.leadership.has_given
            self._step_down()
            if given:
                # The oracle may go on for a while with the word that made this node lead.
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
        """The log is complete: begin the epoch in it and ship that."""
        tick = candidate.tick()._replace(epoch=candidate.epoch, wall_ms=now.wall_ms)
        self._campaign.candidate = None
        configuration = candidate.begins_with(self._log.epochs.last_epoch, self.configuration)
        self._log.append_begin(tick, now.wall_ms, configuration)
        self._ticks.write(tick)
        leader = Leader(self._replica, configuration, tick)
        self.leadership.begin(leader, now)
        self._note_progress(now)

    def _note_progress(self, now: Now) -> None:
        if self.leadership.note_progress(now):
            self._campaign.succeeded()

    def _step_down(self) -> None:
        """Lead no more; what was committed stays so."""
        self._follower.commit = max(self._follower.commit, self.leadership.end())

    def _on_ack(self, source: int, message: Ack, now: Now) -> None:
        leader = self.leader
        if leader is not None and leader.epoch == message.epoch and source in leader.progress:
            leader.take_ack(source, message)
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
        """Drop frames that no later leader has. What is committed is never among them."""
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

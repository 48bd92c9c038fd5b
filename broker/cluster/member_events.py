"""What a member does at each event of replication, at each status of a peer, and every 20 ms.

An event is logged and acted on. Statuses of peers are passed on, and this node's is sent to them.
The poll looks at everything that has no event of its own: the oracle, fitness, statuses, copies and
tick slots. The oracle is asked again and again, since a single suggestion may be lost, or come too
early.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from delaylog.broker.cluster.leading.lead import Lead, tick_facts
from delaylog.broker.cluster.leading.succession import Succession
from delaylog.broker.cluster.member_oracle import Candidacy
from delaylog.broker.cluster.members.known_members import KnownMembers
from delaylog.broker.cluster.members.node_status import STATUS_EVERY_MS, Status, encode_status
from delaylog.broker.cluster.watch.fitness_watch import FitnessWatch
from delaylog.broker.cluster.watch.member_watch import FollowerLag, MemberWatch
from delaylog.replication.messages import (
    Event,
    HandoverFailed,
    NeedsCopy,
    NodeStatus,
    Readmitted,
    Resigned,
    Serving,
    SteppedDown,
    TakeoverAsked,
    Truncated,
)
from delaylog.replication.node import ReplicationNode
from delaylog.storage.work import Work

if TYPE_CHECKING:
    from delaylog.broker.cluster.member import ClusterMember

# ------------------------------------------------------------------------ events of replication

log = logging.getLogger("delaylog.cluster")


class EventActions:
    """The actions of one member. All methods belong to the loop's thread."""

    def __init__(self, member: ClusterMember, succession: Succession, lead: Lead) -> None:
        self._member = member
        self._succession = succession
        self._lead = lead

    def act(self, event: Event) -> None:
        """Carry out one event."""
        member = self._member
        match event:
            case Serving():
                extra = tick_facts(event.tick, "epoch", event.epoch)
                log.info("this node leads, epoch %#x", event.epoch, extra=extra)
                member.counts.leaderships += 1
                self._succession.serve(event)
            case SteppedDown():
                member.copies.giver.abort("this node no longer leads")
                log.info("this node no longer leads, epoch %#x", event.epoch)
                self._lead.end(event)
            case Truncated():
                member.copies.giver.abort("the log was cut")
                text = "the log was cut at %d: no leader had the frames from there on"
                log.warning(text, event.position)
            case Resigned():
                self._resigned(event)
            case TakeoverAsked():
                log.info("the leader hands over to this node")
            case HandoverFailed():
                log.warning("node %d did not take over", event.target)
                self._lead.handover_failed()
            case NeedsCopy():
                if event.node == member.config.node:
                    log.warning("this log is too far behind to lead: another node has to")
                else:
                    log.warning("the log of node %d is too far behind for this one", event.node)
            case Readmitted():
                self._readmitted()

    def _resigned(self, event: Resigned) -> None:
        self._member.counts.resigned += 1
        missing = ", ".join(self._member.watch.missing_voters()) or "none"
        log.warning(
            "this node did not become leader in time and stays out of elections for a while; "
            "voters that are not connected: %s",
            missing,
        )
        self._member.oracle.resign(self._member.machine.boot_ms(), event.until_ms)

    def _readmitted(self) -> None:
        member = self._member
        if member.config.node in member.members.deciding:
            log.warning("this node is a voter again")
        else:
            log.info("this node has the log; it votes once it is promoted")
        # The others remember a voter's folder when it connects: from now on this is one.
        for peer in member.transport.connected():
            member.transport.drop(peer, "this node is a voter again")


# ------------------------------------------------------------------------------------- statuses

USED_EVERY_MS: Final = 5_000
"""Shortest interval at which the use of all principals is sent."""
USED_MAX: Final = 16
"""Principals in one status, whose size has a limit: the next statuses have the others."""


class StatusExchange:
    """The statuses of one member. All methods belong to the loop's thread."""

    def __init__(
        self,
        member: ClusterMember,
        members: KnownMembers,
        watch: MemberWatch,
        fitness: FitnessWatch,
    ) -> None:
        self._member = member
        self._members = members
        self._watch = watch
        self._fitness = fitness
        self._next_ms = 0
        self._used_next_ms = 0
        self._used: list[tuple[str, int]] = []
        """The use of principals that is still to be sent."""

    def receive(self, peer: int, message: NodeStatus) -> None:
        """A peer's status came. Raises PeerError."""
        wall_us = self._member.node.clock.wall_us
        status = self._member.statuses.hear(peer, message, wall_us)
        self._watch.hear(peer, status, wall_us)
        self._members.hear(status)
        self._fitness.heard(peer, self._member.machine.boot_ms())
        if self._member.leading:
            # This node records them.
            used = self._member.node.used_ms
            for name, used_ms in status.used.items():
                used[name] = max(used.get(name, 0), used_ms)

    def look(self) -> None:
        """Send a status to every peer, if it is time."""
        now_ms = self._member.machine.boot_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + STATUS_EVERY_MS
        self._watch.look(now_ms)
        member = self._member
        transport, statuses = member.transport, member.statuses
        mine = {**self._watch.said(), **self._fitness.said(), **self._members.said()}
        if not self._used and now_ms >= self._used_next_ms:
            self._used_next_ms = now_ms + USED_EVERY_MS
            principals = member.node.engine.state.access.principals
            # Callers of an issuer are no principals, and their names have any length.
            self._used = [each for each in member.node.used_ms.items() if each[0] in principals]
        mine["used"] = dict(self._used[:USED_MAX])
        del self._used[:USED_MAX]
        for peer in transport.connected():
            fields = {**mine, **statuses.echo(peer)}
            status = Status(wall_us=member.node.clock.wall_us, **fields)
            transport.send(peer, encode_status(status))


# ------------------------------------------------------------------------------------- the poll

POLL_SECONDS: Final = 0.02
SLOTS_EVERY_MS: Final = 1_000
"""The most of the tick that a power cut may take from one node."""


class MemberPoll:
    """The poll of one member. All methods belong to the loop's thread."""

    def __init__(self, member: ClusterMember, statuses: StatusExchange) -> None:
        self._member = member
        self._statuses = statuses
        self._candidacy = Candidacy(member.counts)
        self._handle: asyncio.TimerHandle | None = None
        self._slots_ms = 0
        self._lag = FollowerLag()
        member.node.timings.follower_lag = self._lag.histograms

    def start(self) -> None:
        """Poll now, and from now on."""
        member = self._member
        self._handle = asyncio.get_running_loop().call_later(POLL_SECONDS, self.start)
        member.fitness.look(member.machine.boot_ms())
        self._statuses.look()
        replication = member.replication
        if replication is not None:
            member.take_input(lambda: self._look(replication))
            member.copies.look()

    def cancel(self) -> None:
        """Poll no more."""
        if self._handle is not None:
            self._handle.cancel()

    def _look(self, replication: ReplicationNode) -> None:
        member = self._member
        now = member.now()
        if member.oracle.failure is not None:
            member.on_fatal(member.oracle.failure)
            return
        oracle = member.oracle
        oracle.look(now.boot_ms)
        chosen, silence_ms = oracle.suggests(now.boot_ms), oracle.silence_ms(now.boot_ms)
        self._candidacy.look(replication, now, chosen=chosen, silence_ms=silence_ms)
        self._candidacy.readmit(replication, now, member.members.all_have_met)
        member.settle()
        if now.boot_ms >= self._slots_ms:
            # The background may be halted: then the next poll asks again.
            if member.node.spawn("tick", self._sync_slots):
                self._slots_ms = now.boot_ms + SLOTS_EVERY_MS
        leader = replication.leader
        matches = {} if leader is None else {n: one.match for n, one in leader.progress.items()}
        self._lag.look(now.boot_ms, member.files.log_end, matches)
        # Nothing looks up the epoch of a frame that was removed.
        files = member.files
        files.replica.epochs.forget(files.physical.first_position)
        # Last, since it may find the disk full.
        member.members.look(replication)

    def _sync_slots(self) -> Work:
        yield self._member.files.slots.sync

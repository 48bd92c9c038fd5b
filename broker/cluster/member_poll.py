"""What a member looks at every 20 ms: the oracle, its fitness, statuses, copies and tick slots.

The oracle is asked again and again, since a single suggestion may be lost, or come too early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from delaylog.broker.cluster.copies.exchange import Copies
from delaylog.broker.cluster.fitness.watch import FitnessWatch
from delaylog.broker.cluster.leading.candidacy import Candidacy
from delaylog.broker.cluster.member_counts import MemberCounts
from delaylog.broker.cluster.member_oracle import MemberOracle
from delaylog.broker.cluster.member_view import MemberView
from delaylog.broker.cluster.members.known_members import KnownMembers
from delaylog.broker.cluster.status_exchange import StatusExchange
from delaylog.broker.cluster.watch.follower_lag import FollowerLag
from delaylog.replication.node import ReplicationNode
from delaylog.replication.timing import Now
from delaylog.storage.work import Work

POLL_SECONDS: Final = 0.02
SLOTS_EVERY_MS: Final = 1_000
"""The most of the tick that a power cut may take from one node."""


class PolledMember(MemberView, Protocol):
    """What the poll needs of its member."""

    copies: Copies
    counts: MemberCounts
    fitness: FitnessWatch
    members: KnownMembers
    on_fatal: Callable[[BaseException], None]
    oracle: MemberOracle

    def take_input(self, take: Callable[[], object]) -> None:
        """Give replication an input and act on the results."""

    def now(self) -> Now:
        """The two times."""

    def settle(self) -> None:
        """Let calls go on that wait for a leader, if there is one."""


class MemberPoll:
    """The poll of one member. All methods belong to the loop's thread."""

    def __init__(self, member: PolledMember, statuses: StatusExchange) -> None:
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
        member.members.look(replication)
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

    def _sync_slots(self) -> Work:
        yield self._member.files.slots.sync

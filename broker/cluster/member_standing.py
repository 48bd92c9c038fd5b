"""What a member's node may do at the moment, and whom it tells of what it did.

It decides nothing: who leads is `Succession`'s word and `LeaderSight`'s, when messages may be
handed out is `Pace`'s, and what is safe is replication's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from delaylog.broker.cluster.leading.leader_sight import LeaderSight
from delaylog.broker.cluster.leading.pace import Pace
from delaylog.broker.cluster.leading.safe_sends import SafeSends
from delaylog.broker.cluster.leading.succession import Succession
from delaylog.broker.cluster.member_view import MemberView
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host.commits.position_waiters import Told, told
from delaylog.broker.host.standing import ClusterCalls
from delaylog.replication.leading.leader import Acks


class StandingMember(MemberView, Protocol):
    """What the standing needs of its member."""

    def take_input(self, take: Callable[[], object]) -> None:
        """Give replication an input and act on the results."""


class MemberStanding:
    """The `Standing` of one member's node. All methods belong to the loop's thread."""

    def __init__(
        self,
        member: StandingMember,
        calls: ClusterCalls,
        succession: Succession,
        sight: LeaderSight,
        pace: Pace,
        safe_sends: SafeSends,
    ) -> None:
        self._member = member
        self._succession = succession
        self._sight = sight
        self._pace = pace
        self._safe_sends = safe_sends
        self.cluster = calls

    @property
    def leading(self) -> bool:
        """Whether the engine leads."""
        return self._succession.leading

    def leader_url(self) -> str | None:
        """Where clients find the leader, if it is another node and known."""
        other = self._sight.other
        return None if other is None else self._member.config.member(other).http_url

    def leader_resp(self) -> tuple[str, int] | None:
        """Where the leader, this node too, takes Redis clients; None if that is not known."""
        leader = self._sight.leader
        return None if leader is None else self._member.config.member(leader).resp

    @property
    def settled(self) -> bool:
        """Whether it is clear who answers: not while one leads no more and no other one yet."""
        return self.may_turn() or (not self._succession.leading and self._sight.other is not None)

    async def until_settled(self, seconds: float) -> None:
        """Wait for that, so long at most: calls come through a change of leaders that is short."""
        await self._sight.wait(seconds)

    def check(self) -> None:
        """Raise NotLeadingError unless changes are taken at this moment."""
        if not self.may_turn():
            raise NotLeadingError("this node does not take changes at the moment; try again")

    def may_turn(self) -> bool:
        """Not while handing over either: the tick stays."""
        return self._succession.leading and self._member.may_append()

    def may_hand_out(self) -> bool:
        """Whether the gate is open: a majority has taken a tick a moment ago."""
        return self._pace.gate_open()

    async def until_may_hand_out(self, seconds: float) -> bool:
        """Wait for the gate: a majority has taken a tick a moment ago."""
        return await self._pace.until_gate_open(seconds)

    def appended(self, *, at_once: bool = False) -> None:
        """Ship what was appended, to those at least who wait for nothing else."""
        replication = self._member.replication
        if replication is not None and replication.leader is not None and self._succession.leading:
            self._member.take_input(lambda: replication.note_appended(at_once=at_once))
            if at_once:
                self._member.transport.flush()

    def synced(self) -> None:
        """The log was synced."""
        replication = self._member.replication
        if replication is not None:
            self._member.take_input(lambda: replication.note_durable(self._pace.now()))

    def turned(self) -> None:
        """The wheel has turned: the tick follows with the next round."""
        self._pace.note_busy()

    def when_safe(self, position: int, acks: Acks | None, call: Told) -> None:
        """Call back once the log is as safe up to `position` as is asked for (None = as
        configured), with NotLeadingError or NotEverywhereError if it cannot be said.
        """
        acks = acks or self._member.config.acks
        if acks is Acks.QUORUM:
            self._member.node.when_durable(position, call)
            return
        replication = self._member.replication
        leader = None if replication is None else replication.leader
        if leader is None or not self._succession.leading:
            call(NotLeadingError("this node leads no more; ask the leader, with the same sequence"))
            return
        self._member.node.appended()
        self._safe_sends.add(leader, position, acks, call)

    async def safe(self, position: int, acks: Acks | None) -> None:
        """The same, waited for."""
        await told(lambda call: self.when_safe(position, acks, call))

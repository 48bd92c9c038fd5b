"""The `NodeRole` of a member: what its node may do at the moment.

It only asks the parts that decide: `Succession` and `LeaderSight` know the leader, `Pace` whether
messages may be delivered, and replication what is safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delaylog.broker.cluster.leading.gate import LeaderSight, Pace
from delaylog.broker.cluster.leading.lead import SafeSends
from delaylog.broker.cluster.leading.succession import Succession
from delaylog.broker.engine.errors import NO_LONGER_LEADS, NotLeadingError
from delaylog.broker.host.log_commits import Completion, until_called
from delaylog.broker.host.node_role import ClusterCalls
from delaylog.replication.leader import Acks

if TYPE_CHECKING:
    from delaylog.broker.cluster.member import ClusterMember


class MemberRole:
    """The `NodeRole` of one member's node. All methods belong to the loop's thread."""

    def __init__(
        self,
        member: ClusterMember,
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
        """The HTTP address of the leader, if it is known and another node."""
        other = self._sight.other
        return None if other is None else self._member.config.member(other).http_url

    def leader_resp(self) -> tuple[str, int] | None:
        """The Redis address of the leader, which may be this node; None if not known."""
        leader = self._sight.leader
        return None if leader is None else self._member.config.member(leader).resp

    @property
    def settled(self) -> bool:
        """Whether a leader is known; False during a change of leaders."""
        return self.may_dispatch() or (
            not self._succession.leading and self._sight.other is not None
        )

    async def until_settled(self, seconds: float) -> None:
        """Wait until a leader is known, at most `seconds`, so that calls survive a short change."""
        await self._sight.wait(seconds)

    def check(self) -> None:
        """Raise NotLeadingError unless this node takes changes at this moment."""
        if not self.may_dispatch():
            raise NotLeadingError("this node does not take changes at the moment; try again")

    def may_dispatch(self) -> bool:
        """Whether due messages may be released; not during a hand-over, which freezes the tick."""
        return self._succession.leading and self._member.may_append()

    def may_deliver(self) -> bool:
        """Whether the gate is open: a majority has taken a tick recently."""
        return self._pace.gate_open()

    def delivers_until_ms(self) -> int:
        """When the gate closes if no further tick is taken."""
        return self._pace.gate_open_until_ms()

    async def until_may_deliver(self, seconds: float) -> bool:
        """Wait for the gate; False if the time is up."""
        return await self._pace.until_gate_open(seconds)

    def appended(self, *, at_once: bool = False) -> None:
        """Ship appended frames; without `at_once` a peer that has not synced gets them later."""
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

    def dispatched(self) -> None:
        """The tick has advanced: the next round carries it."""
        self._pace.note_busy()

    def when_safe(self, position: int, acks: Acks | None, call: Completion) -> None:
        """Call back once the log up to `position` is as safe as `acks` states, or with
        NotLeadingError or NotEverywhereError. None = the configured `acks`.
        """
        acks = acks or self._member.config.acks
        if acks is Acks.QUORUM:
            self._member.node.when_durable(position, call)
            return
        replication = self._member.replication
        leader = None if replication is None else replication.leader
        if leader is None or not self._succession.leading:
            call(NotLeadingError(f"{NO_LONGER_LEADS}, with the same sequence"))
            return
        self._member.node.appended()
        self._safe_sends.add(leader, position, acks, call)

    async def safe(self, position: int, acks: Acks | None) -> None:
        """Wait until the log is as safe; see `when_safe`."""
        await until_called(lambda call: self.when_safe(position, acks, call))

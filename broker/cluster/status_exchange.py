"""Sends this node's status to its peers, and passes on the statuses that they send."""

from __future__ import annotations

from typing import Final

from delaylog.broker.cluster.fitness.watch import FitnessWatch
from delaylog.broker.cluster.member_view import MemberView
from delaylog.broker.cluster.members.known_members import KnownMembers
from delaylog.broker.cluster.members.node_status import STATUS_EVERY_MS, Status, encode_status
from delaylog.broker.cluster.watch.member_watch import MemberWatch
from delaylog.replication.messages import NodeStatus

USED_EVERY_MS: Final = 5_000
"""Shortest interval at which the use of all principals is sent."""
USED_MAX: Final = 16
"""Principals in one status, whose size has a limit: the next statuses have the others."""


class StatusExchange:
    """The statuses of one member. All methods belong to the loop's thread."""

    def __init__(
        self, member: MemberView, members: KnownMembers, watch: MemberWatch, fitness: FitnessWatch
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

"""What a node may do at the moment: alone everything; in a cluster that depends on who leads.

The node asks here before it turns the wheel or hands anything out, and tells of what it has
appended and synced. A broker without a cluster is `Alone`.
"""

from __future__ import annotations

from typing import Any, Protocol

from delaylog.broker.host.commits.position_waiters import Told
from delaylog.replication.leading.leader import Acks


class ClusterCalls(Protocol):
    """What operators ask of a cluster, by any of its nodes."""

    def status(self) -> dict[str, Any]:
        """What this node knows of the cluster."""

    def not_ready(self) -> str | None:
        """Why calls are of no use here at the moment; None if they are."""

    async def hand_over(self, to: int | str | None) -> dict[str, Any]:
        """Have another node lead (None = the fittest); says who does, and the pause."""

    async def change_members(
        self, action: str, nodes: list[str], contact: dict[str, Any]
    ) -> dict[str, Any]:
        """Add, promote, remove, replace or move nodes; says who belongs to it now."""


class Standing(Protocol):
    """The node's place."""

    @property
    def cluster(self) -> ClusterCalls | None:
        """The cluster, if the node is in one."""

    @property
    def leading(self) -> bool:
        """Whether the engine leads: otherwise it can only be looked at."""

    def leader_url(self) -> str | None:
        """Where clients find the leader, if it is another node and known."""

    def leader_resp(self) -> tuple[str, int] | None:
        """Where the leader, this node too, takes Redis clients; None if that is not known."""

    @property
    def settled(self) -> bool:
        """Whether it is clear who answers: not while one leads no more and no other one yet."""

    async def until_settled(self, seconds: float) -> None:
        """Wait for that, so long at most."""

    def check(self) -> None:
        """Raise NotLeadingError unless changes are taken at this moment."""

    def may_turn(self) -> bool:
        """Whether the wheel may turn."""

    def may_hand_out(self) -> bool:
        """Whether messages may be handed out at this moment."""

    async def until_may_hand_out(self, seconds: float) -> bool:
        """Wait until messages may be handed out, in the same turn of the loop; False if the time is
        up. Raises NotLeadingError.
        """

    def appended(self, *, at_once: bool = False) -> None:
        """Frames were appended: ship them, if need be before anything else is said."""

    def turned(self) -> None:
        """The wheel has turned."""

    def synced(self) -> None:
        """The log was synced."""

    def when_safe(self, position: int, acks: Acks | None, call: Told) -> None:
        """Call back once the log is as safe up to `position` as is asked for (None = as
        configured), at once if it is; or with what went wrong.
        """

    async def safe(self, position: int, acks: Acks | None) -> None:
        """The same, waited for."""


class Log(Protocol):
    """The log of a broker alone."""

    def when_durable(self, position: int, call: Told) -> None:
        """Call back once it is safe up to there, at once if it is; or with what went wrong."""

    async def durable(self, position: int) -> None:
        """The same, waited for."""


class Alone:
    """No cluster: everything may be done, and this disk is all there is."""

    leading = True
    cluster = None

    def __init__(self, log: Log) -> None:
        self._log = log

    def leader_url(self) -> str | None:
        """It is this node."""
        return None

    def leader_resp(self) -> tuple[str, int] | None:
        """Where this node listens is its own affair."""
        return None

    @property
    def settled(self) -> bool:
        """Always."""
        return True

    async def until_settled(self, seconds: float) -> None:
        """It is."""

    def check(self) -> None:
        """Always."""

    def may_turn(self) -> bool:
        """Always."""
        return True

    def may_hand_out(self) -> bool:
        """Always."""
        return True

    async def until_may_hand_out(self, seconds: float) -> bool:  # noqa: ARG002 (a protocol's form)
        """Always."""
        return True

    def appended(self, *, at_once: bool = False) -> None:
        """There is nobody to ship it to."""

    def turned(self) -> None:
        """There is nobody to tell."""

    def synced(self) -> None:
        """There is nobody to tell."""

    def when_safe(self, position: int, acks: Acks | None, call: Told) -> None:  # noqa: ARG002
        """This disk is the leader's, a majority's and everybody's."""
        self._log.when_durable(position, call)

    async def safe(self, position: int, acks: Acks | None) -> None:  # noqa: ARG002
        """Likewise."""
        await self._log.durable(position)

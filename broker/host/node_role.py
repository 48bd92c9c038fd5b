"""The role of a node: what it may do at the moment. In a cluster this depends on the leader.

The node asks its `NodeRole` before it dispatches or delivers messages, and reports to it when it
has appended, synced or dispatched. A broker without a cluster uses `Standalone`, which permits
everything.
"""

from __future__ import annotations

from typing import Any, Protocol

from delaylog.broker.host.log_commits import Completion
from delaylog.replication.leader import Acks
from delaylog.storage.layout import NEVER_MS


class ClusterCalls(Protocol):
    """Calls of operators about the cluster; every node answers them."""

    def status(self) -> dict[str, Any]:
        """What this node knows of the cluster."""

    def not_ready(self) -> str | None:
        """Why this node cannot serve calls at the moment; None if it can."""

    async def hand_over(self, to: int | str | None) -> dict[str, Any]:
        """Hand leadership to a node (None = the fittest); returns the new leader and the pause."""

    async def change_members(
        self, action: str, nodes: list[str], contact: dict[str, Any]
    ) -> dict[str, Any]:
        """Add, promote, remove, replace or move nodes; returns the resulting members."""


class NodeRole(Protocol):
    """The role of a node: alone, or leader or follower in a cluster."""

    @property
    def cluster(self) -> ClusterCalls | None:
        """The cluster, or None if the node belongs to none."""

    @property
    def leading(self) -> bool:
        """Whether the engine leads; otherwise it may only be read."""

    def leader_url(self) -> str | None:
        """URL of the leader for clients; None if this node leads or the leader is unknown."""

    def leader_resp(self) -> tuple[str, int] | None:
        """Address for Redis clients of the leader, which may be this node; None if unknown."""

    @property
    def settled(self) -> bool:
        """Whether a leader is known; False between the end of one leadership and the next."""

    async def until_settled(self, seconds: float) -> None:
        """Wait until `settled` is True, for at most `seconds`."""

    def check(self) -> None:
        """Raise NotLeadingError unless the node accepts changes at this moment."""

    def may_dispatch(self) -> bool:
        """Whether due messages may be released and the tick may advance."""

    def may_deliver(self) -> bool:
        """Whether messages may be delivered at this moment."""

    def delivers_until_ms(self) -> int:
        """Until when an answer may hand out leased messages, by the machine's boot clock.

        It lies some milliseconds ahead, and grows while the node leads. A hand-over does not end
        it: the next leader knows the leases.
        """

    async def until_may_deliver(self, seconds: float) -> bool:
        """Wait until messages may be delivered; if they may, then for the rest of the loop's turn.

        Returns False after `seconds`. Raises NotLeadingError.
        """

    def appended(self, *, at_once: bool = False) -> None:
        """Frames were appended: ship them; without `at_once`, an unsynced peer gets them later."""

    def dispatched(self) -> None:
        """Due messages were released and the tick has advanced."""

    def synced(self) -> None:
        """The log was synced."""

    def when_safe(self, position: int, acks: Acks | None, call: Completion) -> None:
        """Call back once the log is safe up to `position`, at once if it already is.

        `acks` states how safe (None = as configured). The callback gets an error if the wait fails.
        """

    async def safe(self, position: int, acks: Acks | None) -> None:
        """Wait until the log is safe up to `position`; see `when_safe`."""


class Log(Protocol):
    """The log of a broker without a cluster."""

    def when_durable(self, position: int, call: Completion) -> None:
        """Call back once the log is durable up to `position`, or with an error."""

    async def durable(self, position: int) -> None:
        """Wait until the log is durable up to `position`."""


class Standalone:
    """The role of a broker without a cluster: it always leads, and only its disk counts."""

    leading = True
    cluster = None

    def __init__(self, log: Log) -> None:
        self._log = log

    def leader_url(self) -> str | None:
        """Return None: this node is the leader."""
        return None

    def leader_resp(self) -> tuple[str, int] | None:
        """Return None: no cluster file states an address for Redis clients."""
        return None

    @property
    def settled(self) -> bool:
        """Return True: this node is the leader."""
        return True

    async def until_settled(self, seconds: float) -> None:
        """Return at once: this node is the leader."""

    def check(self) -> None:
        """Accept changes at any time."""

    def may_dispatch(self) -> bool:
        """Return True: a single node may always dispatch."""
        return True

    def may_deliver(self) -> bool:
        """Return True: a single node may always deliver."""
        return True

    def delivers_until_ms(self) -> int:
        """Return a time that never comes: a single node may always deliver."""
        return NEVER_MS

    async def until_may_deliver(self, seconds: float) -> bool:  # noqa: ARG002 (a protocol's form)
        """Return True at once: a single node may always deliver."""
        return True

    def appended(self, *, at_once: bool = False) -> None:
        """Do nothing: there are no followers."""

    def dispatched(self) -> None:
        """Do nothing: there are no followers."""

    def synced(self) -> None:
        """Do nothing: there are no followers."""

    def when_safe(self, position: int, acks: Acks | None, call: Completion) -> None:  # noqa: ARG002
        """Call back once this disk has the log up to `position`, whatever `acks` asks for."""
        self._log.when_durable(position, call)

    async def safe(self, position: int, acks: Acks | None) -> None:  # noqa: ARG002
        """Wait until this disk has the log up to `position`, whatever `acks` asks for."""
        await self._log.durable(position)

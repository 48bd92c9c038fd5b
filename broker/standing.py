"""What a node may do at the moment: alone everything; in a cluster that depends on who leads.

The node asks here before it turns the wheel or hands anything out, and tells of what it has
appended and synced. A broker without a cluster is `Alone`.
"""

from __future__ import annotations

from typing import Protocol


class Standing(Protocol):
    """The node's place."""

    @property
    def leading(self) -> bool:
        """Whether the engine leads: otherwise it can only be looked at."""

    def leader_url(self) -> str | None:
        """Where clients find the leader, if it is another node and known."""

    def check(self) -> None:
        """Raise NotLeadingError unless changes are taken at this moment."""

    def may_turn(self) -> bool:
        """Whether the wheel may turn."""

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


class Alone:
    """No cluster: everything may be done, and this disk is all there is."""

    leading = True

    def leader_url(self) -> str | None:
        """It is this node."""
        return None

    def check(self) -> None:
        """Always."""

    def may_turn(self) -> bool:
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

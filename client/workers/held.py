"""The messages and leases that a worker holds.

Only the desk changes their state.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delaylog.client.message import LeasedMessage


class HeldState(IntEnum):
    """The state of a message in this process."""

    WAITING = 1
    RUNNING = 2
    OVER = 3
    """Decided, returned, or its lease is lost: a decision that comes later is ignored."""


class Held:
    """One message in this process."""

    __slots__ = ("hold", "identity", "message", "state")

    def __init__(self, message: LeasedMessage, hold: Hold, identity: Hashable) -> None:
        self.message = message
        self.hold = hold
        self.identity = identity
        """Its key, or the message itself. Messages with equal identity never run concurrently."""
        self.state = HeldState.WAITING


class Hold:
    """One lease, with the unsettled messages of one receive.

    Times are seconds of the worker's clock.
    """

    __slots__ = ("desk", "extend_at_s", "open", "port", "until_s")

    def __init__(self, desk: Any, port: int, *, until_s: float, extend_at_s: float) -> None:
        self.desk = desk
        """The desk that owns the messages."""
        self.port = port
        self.until_s = until_s
        """When the lease ends unless it is extended."""
        self.extend_at_s = extend_at_s
        self.open: set[Held] = set()
        """The messages that wait or are being handled."""

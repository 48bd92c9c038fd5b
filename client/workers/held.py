"""What a worker holds: messages, and the leases that they came under.

The one rule: a message is in one state at a time, and only the desk changes it.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delaylog.client.message import Message


class HeldState(IntEnum):
    """Where a message is in this process."""

    WAITING = 1
    RUNNING = 2
    OVER = 3
    """Its lease is lost, or it was given back: whatever its handler says settles nothing."""


class Held:
    """One message in this process."""

    __slots__ = ("hold", "identity", "message", "state")

    def __init__(self, message: Message, hold: Hold, identity: Hashable) -> None:
        self.message = message
        self.hold = hold
        self.identity = identity
        """Its key; without one the message itself. Two with one identity never run at once."""
        self.state = HeldState.WAITING


class Hold:
    """One lease: what one receive answered, as far as it is not settled.

    Seconds are those of the worker's clock.
    """

    __slots__ = ("desk", "extend_at_s", "open", "port", "until_s")

    def __init__(self, desk: Any, port: int, *, until_s: float, extend_at_s: float) -> None:
        self.desk = desk
        """Whose messages these are."""
        self.port = port
        self.until_s = until_s
        """The lease is over, unless the broker gives more time."""
        self.extend_at_s = extend_at_s
        self.open: set[Held] = set()
        """What waits or runs."""

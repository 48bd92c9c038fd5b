"""Deliveries, dead letters, and the results of a rollback."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from delaylog.client._sync.message import Message
from delaylog.client.queues.rmq.messages import RETRIES_MAX


@dataclass(frozen=True, slots=True)
class RmqDelivery:
    """A taken message. Commit it or roll it back before its time to commit is over."""

    body: str
    slot: int
    attempt: int
    """1 at the first delivery, 17 at the last."""
    message: Message = field(repr=False)
    """The leased message."""

    @property
    def retries_left(self) -> int:
        """How many more deliveries are possible."""
        return max(0, RETRIES_MAX + 1 - self.attempt)


@dataclass(frozen=True, slots=True)
class RmqDeadLetter:
    """A message that failed 17 times."""

    body: str
    slot: int
    id: str
    died_at_ms: int


class RolledBack(Enum):
    """The result of a rollback."""

    GONE = "gone"
    """It was already committed, or its time was over: nothing was done."""
    RETRY = "retry"
    DEAD = "dead"
    UNKNOWN = "unknown"
    """An answer was lost: it was rolled back, or its time was over. It is redelivered."""

"""What an RMQ consumer has in hand: deliveries, dead letters, and what became of a roll back."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from delaylog.client.message import Message
from delaylog.client.queues.rmq.messages import RETRIES_MAX


@dataclass(frozen=True, slots=True)
class RmqDelivery:
    """A message in work: commit it or roll it back before its time to commit is over."""

    body: str
    slot: int
    attempt: int
    """1 at the first delivery, 17 at the last."""
    message: Message = field(repr=False)
    """The lease that it is under."""

    @property
    def retries_left(self) -> int:
        """How often it can still be delivered after this time."""
        return max(0, RETRIES_MAX + 1 - self.attempt)


@dataclass(frozen=True, slots=True)
class RmqDeadLetter:
    """A message that failed 17 times."""

    body: str
    slot: int
    id: str
    died_at_ms: int


class RolledBack(Enum):
    """What became of a delivery that was rolled back."""

    GONE = "gone"
    """It was committed or its time was over before; nothing was done."""
    RETRY = "retry"
    DEAD = "dead"
    UNKNOWN = "unknown"
    """An answer was lost: it was rolled back, or its time was over before. It comes again."""

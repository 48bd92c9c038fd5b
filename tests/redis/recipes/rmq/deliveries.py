"""A delivery and a dead letter of an RMQ topic on Redis; the messages are those of both recipes."""

from __future__ import annotations

from dataclasses import dataclass

from delaylog.client.queues.rmq.messages import RETRIES_MAX


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message in work: commit it or roll it back."""

    body: str
    slot: int
    prepare_score: int
    """Second of the delivery x 1000 + retries left."""

    @property
    def retries_left(self) -> int:
        """How often it can still be delivered after this time."""
        return self.prepare_score % 1000

    @property
    def attempt(self) -> int:
        """1 at the first delivery, 17 at the last."""
        return RETRIES_MAX - self.retries_left + 1


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that failed 17 times."""

    body: str
    slot: int
    died_at_ms: int

"""The three kinds of message of an RMQ topic, and a delivery.

The one rule: the body is the message. The same body in the same slot is the same message, so equal
bodies must come with equal slot bases.
"""

from __future__ import annotations

from dataclasses import dataclass

RETRIES_MAX = 16
"""Deliveries beyond the first. Scores up to it mean retries left, so no priority or time is."""


@dataclass(frozen=True, slots=True)
class RangeMergeMessage:
    """Delivered `time_range_ms` after its first send; what is sent meanwhile merges into it."""

    body: str
    time_range_ms: int
    slot_basis: str | None = None

    def __post_init__(self) -> None:
        if self.time_range_ms <= 0:
            raise ValueError(f"a time range is more than 0 ms, not {self.time_range_ms}")


@dataclass(frozen=True, slots=True)
class PriorityMessage:
    """Delivered at once, the highest priority first."""

    body: str
    priority: int
    slot_basis: str | None = None

    def __post_init__(self) -> None:
        if self.priority <= RETRIES_MAX:
            raise ValueError(f"a priority is more than {RETRIES_MAX}, not {self.priority}")


@dataclass(frozen=True, slots=True)
class FixedTimeMessage:
    """Delivered at a time; a later send of the same body moves it."""

    body: str
    fixed_time_ms: int
    slot_basis: str | None = None


RmqMessage = RangeMergeMessage | PriorityMessage | FixedTimeMessage


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

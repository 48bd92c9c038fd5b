"""The three kinds of message of an RMQ topic.

The body identifies the message: the same body in the same slot is the same message. So equal bodies
must have equal slot bases.
"""

from __future__ import annotations

from dataclasses import dataclass

RETRIES_MAX = 16
"""The number of deliveries after the first. Priorities start above it."""


@dataclass(frozen=True, slots=True)
class RangeMergeMessage:
    """Delivered `time_range_ms` after its first send; later sends of the body merge into it."""

    body: str
    time_range_ms: int
    slot_basis: str | None = None

    def __post_init__(self) -> None:
        if self.time_range_ms <= 0:
            raise ValueError(f"a time range is more than 0 ms, not {self.time_range_ms}")


@dataclass(frozen=True, slots=True)
class PriorityMessage:
    """Delivered immediately, the highest priority first."""

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

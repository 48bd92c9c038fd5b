"""A message of Dyno-queues, and its JSON form, which other programs use too.

The original stores the JSON. Here the broker stores the payload, and the JSON is generated for
calls that return or search it. The text equals Jackson's output for the original's class: compact,
without empty and null members, always with `timeout` and `priority`; unknown members are ignored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

PRIORITY_MAX = 99


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a queue. Two messages are equal if their ids are equal."""

    id: str
    payload: str = field(default="", compare=False)
    timeout_ms: int = field(default=0, compare=False)
    """The delay between the push and the due time."""
    priority: int = field(default=0, compare=False)
    """0 to 99; among messages due in the same millisecond the lowest comes first."""
    shard: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= PRIORITY_MAX:
            raise ValueError(f"priority {self.priority} is not within 0..{PRIORITY_MAX}")

    def __repr__(self) -> str:
        """Without the payload, which may be long or secret."""
        return (
            f"DynoMessage(id={self.id!r}, timeout_ms={self.timeout_ms}, "
            f"priority={self.priority}, shard={self.shard!r}, {len(self.payload)} characters)"
        )


def encode(message: Message) -> str:
    """Encode a message as JSON."""
    members: dict[str, str | int] = {}
    if message.id:
        members["id"] = message.id
    if message.payload:
        members["payload"] = message.payload
    members["timeout"] = message.timeout_ms
    members["priority"] = message.priority
    if message.shard:
        members["shard"] = message.shard
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))

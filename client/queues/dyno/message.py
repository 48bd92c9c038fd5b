"""A message of Dyno-queues and its JSON, which other programs read and write too.

The original stores that JSON; here a message stores the payload, and the JSON is made for those
calls that answer or search it.

The one rule: the text is what Jackson makes of the original's class: compact, empty and null
members left out, `timeout` and `priority` always there, unknown members passed over.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

PRIORITY_MAX = 99


@dataclass(frozen=True, slots=True)
class Message:
    """What a queue carries. Two messages are equal if their ids are."""

    id: str
    payload: str = field(default="", compare=False)
    timeout_ms: int = field(default=0, compare=False)
    """How long after the push it becomes due."""
    priority: int = field(default=0, compare=False)
    """0 to 99; the lowest goes first among those due in one millisecond."""
    shard: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= PRIORITY_MAX:
            raise ValueError(f"priority {self.priority} is not within 0..{PRIORITY_MAX}")

    def __repr__(self) -> str:
        """By the name it is offered under, and without its payload, which may be long or secret."""
        return (
            f"DynoMessage(id={self.id!r}, timeout_ms={self.timeout_ms}, "
            f"priority={self.priority}, shard={self.shard!r}, {len(self.payload)} characters)"
        )


def encode(message: Message) -> str:
    """The body as it is stored."""
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

"""The leases of this queue object, by message id.

An id that this object has taken is settled with its own lease, even after the lease has ended. So a
late consumer cannot settle a delivery of another consumer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from delaylog.client._sync.message import Message

HELD_MAX = 65_536
"""How many of the newest leases are remembered; older ones are settled by id."""


class Held:
    """Maps message ids to shard names and deliveries. Thread-safe."""

    def __init__(self, held_max: int = HELD_MAX) -> None:
        self._by_id: dict[str, tuple[str, Message]] = {}
        self._held_max = held_max
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_id)

    def keep(self, shard: str, messages: Iterable[Message]) -> None:
        """Add deliveries."""
        with self._lock:
            for message in messages:
                message_id = message.id
                self._by_id.pop(message_id, None)
                self._by_id[message_id] = (shard, message)
            while len(self._by_id) > self._held_max:
                del self._by_id[next(iter(self._by_id))]

    def find(self, message_id: str) -> tuple[str, Message] | None:
        """The shard and the newest delivery of an id, or None."""
        return self._by_id.get(message_id)

    def drop(self, message_id: str, message: Message) -> None:
        """Remove a settled delivery, unless there is a newer one of the id."""
        with self._lock:
            found = self._by_id.get(message_id)
            if found is not None and found[1] is message:
                del self._by_id[message_id]

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._by_id.clear()

"""Which leases this queue object has been given, by message id.

The one rule: an id that was handed out here is settled by the lease it was handed out under, also
after that has ended. So who comes too late ends nothing that another consumer has by now.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from delaylog.client.message import Message

HELD_MAX = 65_536
"""The newest so many are remembered; what was taken before them is settled by its bare id."""


class Held:
    """Message id -> shard name and delivery. Safe to use from many threads."""

    def __init__(self, held_max: int = HELD_MAX) -> None:
        self._by_id: dict[str, tuple[str, Message]] = {}
        self._held_max = held_max
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_id)

    def keep(self, shard: str, messages: Iterable[Message]) -> None:
        """These were handed out now."""
        with self._lock:
            for message in messages:
                message_id = message.id
                self._by_id.pop(message_id, None)
                self._by_id[message_id] = (shard, message)
            while len(self._by_id) > self._held_max:
                del self._by_id[next(iter(self._by_id))]

    def find(self, message_id: str) -> tuple[str, Message] | None:
        """Where it came from, and its newest delivery here."""
        return self._by_id.get(message_id)

    def drop(self, message_id: str, message: Message) -> None:
        """This delivery is settled; a newer one of the id stays."""
        with self._lock:
            found = self._by_id.get(message_id)
            if found is not None and found[1] is message:
                del self._by_id[message_id]

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._by_id.clear()

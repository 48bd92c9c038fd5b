"""Ids that a queue read ahead.

The one rule: an id is held once, however often it is read. A second copy could be taken after the
message was acknowledged and would then lie in unack for nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence


class Prefetch:
    """Ids read ahead from one shard, and how many more are wanted. All callers share it."""

    def __init__(self) -> None:
        self._wanted = 0
        self._held: dict[str, None] = {}
        self._lock = threading.Lock()

    @property
    def wanted(self) -> int:
        """How many ids callers still wait for."""
        return self._wanted

    def want(self, count: int) -> None:
        """One more caller wants so many."""
        with self._lock:
            self._wanted += count

    def want_again(self, count: int) -> None:
        """A caller that still waits wants what `count` lacks, if nobody does already."""
        with self._lock:
            self._wanted = max(self._wanted, count - len(self._held))

    def forgo(self, count: int) -> None:
        """A caller found its messages elsewhere."""
        with self._lock:
            self._wanted = max(0, self._wanted - count)

    def read_limit(self) -> int:
        """How many ids to read: what is wanted behind what is held; 0 if nothing is wanted."""
        with self._lock:
            return self._wanted + len(self._held) if self._wanted > 0 else 0

    def came(self, found: Sequence[str]) -> None:
        """Keep what was read. If nothing new came, nobody is waited for any more."""
        with self._lock:
            new = [found_id for found_id in found if found_id not in self._held]
            self._held |= dict.fromkeys(new)
            self._wanted = max(0, self._wanted - len(new)) if new else 0

    def held(self) -> int:
        """How many ids are there to take."""
        return len(self._held)

    def let_go(self, count: int) -> list[str]:
        """Hand the oldest ids to one caller."""
        with self._lock:
            ids = list(self._held)[: max(0, count)]
            for message_id in ids:
                del self._held[message_id]
        return ids

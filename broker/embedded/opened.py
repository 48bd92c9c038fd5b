"""A folder that an embedded broker has: its node, its clock, and the lock that keeps it."""

from __future__ import annotations

import os
import threading
from typing import Generic, TypeVar

from delaylog.broker.embedded.clocks import Clock, ManualClock
from delaylog.broker.embedded.node import EmbeddedNode

ClockT = TypeVar("ClockT", bound=Clock)


class Opened(Generic[ClockT]):
    """What `opening` makes and a broker stands on."""

    def __init__(self, node: EmbeddedNode, clock: ClockT, lock: int, namespace: str) -> None:
        """Over a node that runs; `lock` is the descriptor that keeps the folder."""
        self.node = node
        self.clock = clock
        self.namespace = namespace
        self._lock: int | None = lock
        self._closing = threading.Lock()

    def close(self) -> None:
        """End the node and let go of the folder. Several threads may close it."""
        # The folder is free when the first of several that close it has written everything.
        with self._closing:
            try:
                if isinstance(self.clock, ManualClock) and not self.node.closed:
                    self.clock.detach(self.node)
                self.node.close()
            finally:
                lock, self._lock = self._lock, None
                if lock is not None:
                    os.close(lock)

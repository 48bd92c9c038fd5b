"""camellia's health switch: a deployer takes a node out of service and asks until it is idle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

IDLE_SECONDS: Final = 20.0


class Health:
    """Whether this node says it is in service, and when a queue call came last."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last_call = monotonic()
        self.online = True

    def called(self) -> None:
        """A queue call came."""
        self._last_call = self._monotonic()

    @property
    def idle(self) -> bool:
        """Whether no queue call came for a while."""
        return self._monotonic() - self._last_call >= IDLE_SECONDS

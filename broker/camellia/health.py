"""camellia's health switch: a deployment takes a node out of service and polls until it is idle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

IDLE_SECONDS: Final = 20.0


class Health:
    """Whether this node reports that it is in service, and the time of the last queue call."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last_call = monotonic()
        self.online = True

    def called(self) -> None:
        """Note that a queue call has arrived."""
        self._last_call = self._monotonic()

    @property
    def idle(self) -> bool:
        """Whether no queue call has arrived for `IDLE_SECONDS`."""
        return self._monotonic() - self._last_call >= IDLE_SECONDS

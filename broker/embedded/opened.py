"""The open data folder of an embedded broker: its node, its clock, and the lock of the folder."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from delaylog.broker.embedded.clocks import ManualClock
from delaylog.broker.embedded.closed import ClosedError
from delaylog.broker.embedded.node import NodeThread
from delaylog.broker.host.clock import Clock
from delaylog.client.codec import Codec
from delaylog.client.hooks import Hooks

if TYPE_CHECKING:
    from delaylog.broker.process.embedded_dashboard import UiThread

ClockT = TypeVar("ClockT", bound=Clock)


@dataclass(frozen=True, slots=True)
class Face:
    """How the callers of an open folder see it."""

    namespace: str
    codec: Codec
    hooks: Hooks | None


class Opened(Generic[ClockT]):
    """An open data folder: created by `opening`, used by a broker."""

    def __init__(self, thread: NodeThread, clock: ClockT, lock: int, face: Face) -> None:
        """`thread` runs already; `lock` = the descriptor that holds the folder's lock."""
        self.thread = thread
        self.clock = clock
        self.face = face
        self._lock: int | None = lock
        self._closing = threading.Lock()
        self._ui: UiThread | None = None

    def serve_ui(self, host: str, port: int) -> str:
        """Serve the dashboard, unless it is served already; return its URL. Raises OSError."""
        # Loads aiohttp, which nothing else here needs.
        from delaylog.broker.process.embedded_dashboard import UiThread

        with self._closing:
            if self.thread.closed:
                raise ClosedError("this broker is closed: open its folder again")
            if self._ui is None:
                self._ui = UiThread(self.thread, host, port)
            return self._ui.url

    def close(self) -> None:
        """Close the node and release the folder. Several threads may call it."""
        # The first caller writes everything and releases the folder; the others wait for that.
        with self._closing:
            ui, self._ui = self._ui, None
            if ui is not None and not self.thread.forked:
                ui.close()
            try:
                if isinstance(self.clock, ManualClock) and not self.thread.closed:
                    self.clock.detach(self.thread)
                self.thread.close()
            finally:
                lock, self._lock = self._lock, None
                if lock is not None:
                    os.close(lock)

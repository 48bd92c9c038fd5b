"""The open data folder of an embedded broker: its node, its clock and its dashboard."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from delaylog.broker.embedded.clocks import ManualClock
from delaylog.broker.embedded.node import ClosedError, NodeThread
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
    """An open data folder: created by `open_folder`, used by a broker."""

    def __init__(self, thread: NodeThread, clock: ClockT, face: Face) -> None:
        """`thread` runs already."""
        self.thread = thread
        self.clock = clock
        self.face = face
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
        """Close the node, which then releases the folder.

        Several threads may call it, and who was interrupted may call it again: each waits for the
        end.
        """
        if self.thread.forked:
            return
        with self._closing:
            if self._ui is not None:
                self._ui.close()
                self._ui = None
            if isinstance(self.clock, ManualClock):
                self.clock.detach(self.thread)
            self.thread.close()

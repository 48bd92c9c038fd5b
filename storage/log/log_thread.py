"""The log thread: one job of write + fdatasync for everything appended so far.

Group commit: while one job runs, frames of many turns pile up and go out together in the next.
After each job the thread calls `done`, with the error if there was one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from delaylog.storage.log.physical_log import PhysicalLog


class LogThread:
    """Runs `write_pending` + `sync` of a log whenever it is kicked."""

    def __init__(self, log: PhysicalLog, done: Callable[[BaseException | None], None]) -> None:
        self._log = log
        self._done = done
        # A SimpleQueue wakes the thread in a fifth of the time that a semaphore takes.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="delaylog-log", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def kick(self) -> None:
        """Ask for one job. The host asks again only after `done`."""
        self._wake.put(None)

    def stop(self) -> None:
        """End the thread after the job that runs."""
        self._stopping = True
        self._wake.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.get()
            if self._stopping:
                return
            error: BaseException | None = None
            try:
                self._log.write_pending()
                self._log.sync()
            except BaseException as failure:
                error = failure
            self._done(error)

"""SIGTERM and SIGINT for a program that runs workers.

The first asks it to end, the second ends it. The one rule: a process that was asked to end does
end: when it has not after a while, because a handler blocks its thread, it is left at once. What
it held comes again when the leases are over.

Python runs a signal's handler in the main thread between any two steps of it, so also while that
holds a lock of an Event or of the threads that are being started: a handler that needs one of them
would wait for itself. So it does no more than tell a thread, through a queue made for that.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final, Self

logger = logging.getLogger(__name__)

WATCHED: Final = (signal.SIGTERM, signal.SIGINT)
# A program such as `timeout` sends a signal to the process and to its group: that is one.
SAME_S: Final = 0.1
# What a shell shows for a program that a signal ended is this and the signal's number.
SIGNALLED: Final = 128


class Signals:
    """Watches them inside a `with` block. RuntimeError outside the main thread."""

    def __init__(self, on_first: Callable[[], object], *, limit_s: float) -> None:
        """`on_first` is called by a thread of its own; `limit_s` later it is over."""
        self._on_first = on_first
        self._limit_s = limit_s
        self._before: dict[signal.Signals, Any] = {}
        self._asked: float | None = None
        """When the first signal came."""
        self._told: SimpleQueue[int | None] = SimpleQueue()
        """The first signal, and None at the end."""

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "run() watches signals, which only the main thread can: use start() and stop()"
            )
        threading.Thread(target=self._watch, name="delaylog-signals", daemon=True).start()
        for number in WATCHED:
            self._before[number] = signal.signal(number, self._came)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        self._told.put(None)

    def _came(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        now = time.monotonic()
        if self._asked is None:
            self._asked = now
            self._told.put(number)
        elif now - self._asked > SAME_S:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _watch(self) -> None:
        number = self._told.get()
        if number is None:
            return
        # A loop that has closed meanwhile is not asked any more.
        with suppress(RuntimeError):
            self._on_first()
        try:
            self._told.get(timeout=self._limit_s)
        except Empty:
            _leave(number, self._limit_s)


def _leave(number: int, limit_s: float) -> None:
    logger.critical("handlers block the shutdown, %.1f s after it began: leaving", limit_s)
    # Neither the loop nor the main thread can be reached, so nothing is tidied up.
    os._exit(SIGNALLED + number)

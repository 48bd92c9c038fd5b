"""SIGTERM and SIGINT for a program that runs workers.

The first signal requests a graceful shutdown, the second one kills the process. If the shutdown
does not finish in time, because a handler blocks its thread, the process exits immediately. The
messages that it held are redelivered when their leases end.

Python runs a signal handler in the main thread between any two bytecodes, so possibly while the
main thread holds the lock of an Event or of the threading module. A signal handler that needs such
a lock would deadlock. So it only wakes a thread, through a reentrant SimpleQueue.
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
# Programs such as `timeout` signal both the process and its group: count that as one signal.
DUPLICATE_S: Final = 0.1
# Shells report a process that was ended by a signal with this status plus its number.
SIGNALLED: Final = 128


class Signals:
    """Handles the signals inside a `with` block. RuntimeError outside the main thread."""

    def __init__(self, on_first: Callable[[], object], *, limit_s: float) -> None:
        """`on_first` is called by a separate thread; the process exits `limit_s` later."""
        self._on_first = on_first
        self._limit_s = limit_s
        self._process_id = os.getpid()
        self._before: dict[signal.Signals, Any] = {}
        self._first_at_s: float | None = None
        """When the first signal arrived."""
        self._events: SimpleQueue[int | None] = SimpleQueue()
        """Gets the first signal, and None at the end of the block."""

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "run() watches signals, which only the main thread can: use start() and stop()"
            )
        threading.Thread(target=self._watch, name="delaylog-signals", daemon=True).start()
        for number in WATCHED:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        self._events.put(None)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        now = time.monotonic()
        if os.getpid() != self._process_id:
            # A child that a handler has forked runs no worker, and nothing else would end it.
            self._restore()
            os.kill(os.getpid(), number)
        elif self._first_at_s is None:
            self._first_at_s = now
            self._events.put(number)
        elif now - self._first_at_s > DUPLICATE_S:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)

    def _watch(self) -> None:
        number = self._events.get()
        if number is None:
            return
        try:
            # The event loop may already be closed.
            with suppress(RuntimeError):
                self._on_first()
        except Exception:
            logger.exception("the shutdown could not begin")
        finally:
            self._await_end(number)

    def _await_end(self, number: int) -> None:
        try:
            self._events.get(timeout=self._limit_s)
        except Empty:
            _exit_now(number, self._limit_s)


def _exit_now(number: int, limit_s: float) -> None:
    logger.critical("handlers block the shutdown, %.1f s after it began: leaving", limit_s)
    # The loop and the main thread may both be blocked, so no cleanup is possible.
    os._exit(SIGNALLED + number)

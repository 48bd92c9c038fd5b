"""Timers that survive errors and never run twice."""

from __future__ import annotations

from collections.abc import Callable

from raftos.timer import Timer


class SteadyTimer(Timer):
    """A timer that sets itself again before its callback, whose changes to the timer stay.

    raftos' timer does so after the callback: an error ends it, and a timer that its callback has
    reset runs twice from then on.
    """

    def __init__(self, interval_s: Callable[[], float], callback: Callable[[], None]) -> None:
        super().__init__(interval_s, callback)
        self.handler = None

    def _run(self) -> None:
        self.start()
        self.callback()

    def stop(self) -> None:
        self.is_active = False
        if self.handler is not None:
            self.handler.cancel()
            self.handler = None

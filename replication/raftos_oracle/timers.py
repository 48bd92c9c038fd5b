"""Timers that an error does not end and that never run twice."""

from __future__ import annotations

from collections.abc import Callable

from raftos.timer import Timer


class SteadyTimer(Timer):
    """raftos' timer sets itself again after its callback.

    So an error ends it, and one that was reset by its callback runs twice from then on. Here it is
    set first: what the callback does to it stays.
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

"""Rate-limited logging of warnings that clients or peers can cause at will."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from delaylog.broker.host.machine import REAL

REPEAT_S: Final = 5.0


class QuietLog:
    """Logs at most one warning of a kind in five seconds, with the number of suppressed ones."""

    def __init__(self, logger: logging.Logger, now: Callable[[], float] = REAL.steady_s) -> None:
        """`now` returns the seconds of a steady clock."""
        self._logger = logger
        self._now = now
        self._last: dict[str, float] = {}
        self._held_back: dict[str, int] = {}

    def tell(self, kind: str, text: str, *args: object, **extra: object) -> None:
        """Log a warning, unless one of its kind was logged recently. Kinds are few and fixed."""
        now = self._now()
        if now - self._last.get(kind, -REPEAT_S) < REPEAT_S:
            self._held_back[kind] = self._held_back.get(kind, 0) + 1
            return
        self._last[kind] = now
        repeated = self._held_back.pop(kind, 0)
        if repeated:
            extra["repeated"] = repeated
        self._logger.warning(text, *args, extra=extra or None)

"""The service log of a broker, on standard error, and what it says of a long start.

`StartLog` logs the progress of a start while it is long, and has the time of each reported step.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Final

from delaylog.log_lines import JsonFormatter, TextFormatter

# ------------------------------------------------------------------------------- form and level

_NAMELESS: Final = "SSL connection is closed"
"""What the event loops say of writes to a TLS connection that is ending, without its address. The
owners of connections log their ends themselves, with the peer and the reason.
"""


def set_up_logs(level: str, form: str) -> None:
    """Send all logs to standard error; `auto` is text for a terminal and JSON elsewhere."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "text" or (form == "auto" and sys.stderr.isatty()):
        handler.setFormatter(TextFormatter())
    else:
        handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)
    logging.getLogger("asyncio").addFilter(_is_useful)


def logs_are_json() -> bool:
    """Whether `set_up_logs` has chosen JSON."""
    return any(isinstance(each.formatter, JsonFormatter) for each in logging.getLogger().handlers)


def _is_useful(record: logging.LogRecord) -> bool:
    return record.msg != _NAMELESS


# -------------------------------------------------------------------------- progress of a start

START_LOG_SECONDS: Final = 2.0

log = logging.getLogger("delaylog.serve")


class StartLog:
    """Logs the progress of a long start every few seconds, and times its steps."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns the seconds of a steady clock."""
        self._now = now
        self._said = self._began = now()
        self._step, self._step_began = "", 0.0
        self.seconds: dict[str, float] = {}
        """Seconds by step; `total` includes those that are too short to report."""

    def ended(self) -> dict[str, float]:
        """The times, once the start has ended."""
        self.seconds["total"] = self._now() - self._began
        return self.seconds

    def __call__(self, what: str, done: int, total: int) -> None:
        now = self._now()
        if what != self._step:
            self._step, self._step_began = what, now
        self.seconds[what] = now - self._step_began
        if now - self._said >= START_LOG_SECONDS:
            self._said = now
            share = f"{done / total:.0%}" if total else "?"
            log.info(f"{what}: {share}", extra={"done": done, "total": total})  # noqa: G004

"""The logs of a broker, on standard error."""

from __future__ import annotations

import logging
import sys
from typing import Final

from delaylog.log_lines import JsonFormatter, TextFormatter

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

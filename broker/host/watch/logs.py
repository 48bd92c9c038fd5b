"""Structured logs on standard error: one JSON object a line, or plain text."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Final

import orjson

_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Writes time, level, logger, message and all `extra` values as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        members: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        members.update({k: v for k, v in vars(record).items() if k not in _PLAIN})
        if record.exc_info:
            members["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(members, default=str).decode()
        except TypeError:
            # orjson refuses unpaired surrogates, integers over 64 bits, and keys that are no text.
            return json.dumps({k: ascii(v) for k, v in members.items()})


class TextFormatter(logging.Formatter):
    """Writes readable lines; `extra` values follow the message as name=value."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (its base's name)
        words = [f" {k}={_word(v)}" for k, v in vars(record).items() if k not in _PLAIN]
        return super().formatMessage(record) + "".join(words)


def _word(value: Any) -> str:
    """A value on one line, in quotes if it is empty or has spaces, quotes or `=`."""
    text = str(value)
    return text if text.isprintable() and text and not set(text) & set(' "=') else ascii(text)


def set_up_logs(level: str, form: str) -> None:
    """Send all logs to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)

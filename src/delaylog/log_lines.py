"""Logs of the processes of a broker and of workers: one JSON object a line, or plain text."""

from __future__ import annotations

import json
import logging
import time
from typing import Any, Final

import orjson

_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Writes time, level, logger, message and all `extra` values as one JSON object, and with
    `pid` the number of the process.
    """

    def __init__(self, *, pid: bool = False) -> None:
        super().__init__()
        self._pid = pid

    def format(self, record: logging.LogRecord) -> str:
        members: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._pid:
            members["pid"] = record.process
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

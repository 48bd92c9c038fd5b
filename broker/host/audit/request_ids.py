"""Request ids: they connect an answer with lines of the log, the audit log and the client's log."""

from __future__ import annotations

import re
from itertools import count
from random import Random
from typing import Final

HEADER: Final = "X-Request-Id"
_ACCEPTED: Final = re.compile(r"[!-~]{1,128}")
_START_BITS: Final = 64


class RequestIds:
    """The ids of the requests of one process: unique, not secret.

    An id is a random start and a count, since a random number for each request costs more than the
    rest of its head.
    """

    def __init__(self, random: Random) -> None:
        self._start = f"{random.getrandbits(_START_BITS):016x}-"
        self._counts = count(1)

    def new(self) -> str:
        """A new id."""
        return f"{self._start}{next(self._counts):x}"

    def of(self, text: str | None) -> str:
        """The client's own id if it can be used, else a new one."""
        return text if text is not None and _ACCEPTED.fullmatch(text) else self.new()

"""Request ids: they connect an answer with its lines in the audit log and in the client's log."""

from __future__ import annotations

import re
from random import Random
from typing import Final

HEADER: Final = "X-Request-Id"
_ACCEPTED: Final = re.compile(r"[!-~]{1,128}")


def make_request_id(random: Random) -> str:
    """A new request id: 32 hex digits. It is unique, not secret."""
    return f"{random.getrandbits(128):032x}"


def accepted_request_id(text: str | None) -> str | None:
    """The client's own id if it can be used: 1 to 128 printable ASCII characters, no spaces."""
    return text if text is not None and _ACCEPTED.fullmatch(text) else None

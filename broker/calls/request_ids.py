"""The ids of a request: its request id, and the W3C trace that it belongs to.

A request id connects an answer with lines of the log, the audit log and the client's log. A message
keeps the trace context of its send in its headers, under W3C's names. No redelivery or reschedule
changes them, so that a delivery can link to its send.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count
from random import Random
from typing import Any, Final

# ------------------------------------------------------------------------------- trace contexts

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
TRACESTATE_MAX: Final = 512
"""Characters that W3C asks to keep at least; a longer one is dropped."""
TRACEPARENT_MAX: Final = 512
"""Characters of a `traceparent` of a later version, which may have more parts."""
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?"
)
"""Version ff and ids of zeros are invalid."""
_FIRST_VERSION: Final = "00"


def trace_id_of(headers: Mapping[str, str]) -> str | None:
    """The trace of a request, None without a valid `traceparent`."""
    text = headers.get(TRACEPARENT)
    if text is None or len(text) > TRACEPARENT_MAX:
        return None
    found = _TRACEPARENT.fullmatch(text)
    # Only versions after the first one may have parts after the flags.
    if found is None or (found[2] and text.startswith(_FIRST_VERSION)):
        return None
    return found[1]


def keep_trace(members: Any, headers: Mapping[str, str]) -> None:
    """Give the messages of a body, one or a list, the trace context of their request.

    A message that has one of its headers, in whatever case, keeps its own: its `tracestate` belongs
    to no other parent. What is no message stays as it is, to be refused by those who check it.
    """
    if trace_id_of(headers) is None:
        return
    context = {TRACEPARENT: headers[TRACEPARENT]}
    state = headers.get(TRACESTATE, "")
    if state and len(state) <= TRACESTATE_MAX and state.isascii():
        context[TRACESTATE] = state
    for message in members if isinstance(members, list) else (members,):
        if isinstance(message, dict):
            own = message.get("headers") or {}
            if isinstance(own, dict) and not any(
                isinstance(name, str) and name.lower() in (TRACEPARENT, TRACESTATE) for name in own
            ):
                message["headers"] = own | context


# ---------------------------------------------------------------------------------- request ids

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

"""Arguments of calls that are judged before anything is sent, and how their failures read.

The one rule: a failure names the argument, what is wanted, and what was given. What a broker's own
limits decide is left to the broker, which names the bound; here stands only what cannot be sent.
"""

from __future__ import annotations

import re
from typing import Final

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}\Z")
# A broker refuses a wait of more than a minute at once; sockets cannot be told of much longer ones.
ANSWER_WAIT_S_MAX: Final = 86_400.0


def check_whole(name: str, value: object, least: int = INT64_MIN, most: int = INT64_MAX) -> None:
    """TypeError unless it is a whole number, ValueError unless it lies in these bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} lies from {least} to {most}, not {value}")


def check_sendable(**numbers: object) -> None:
    """ValueError for a number that no body can hold; whatever else is wrong the broker says."""
    for name, value in numbers.items():
        if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
            check_whole(name, value)


def check_text(name: str, value: object) -> None:
    """TypeError unless it is a text, or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} is a text or None, not {type(value).__name__}")


def check_namespace(namespace: object) -> None:
    """TypeError, or ValueError unless a namespace can have this name."""
    if not isinstance(namespace, str):
        raise TypeError(f"a namespace is named by a str, not {type(namespace).__name__}")
    if not _NAME.match(namespace):
        raise ValueError(f"a namespace is named [A-Za-z0-9._-]{{1,200}}, not {namespace!r}")


def check_list(what: str, values: object) -> None:
    """TypeError for one text or body, whose parts would be taken for as many."""
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{what} are a list, not one {type(values).__name__}")


def answer_wait_s(wait_ms: object) -> float:
    """How much longer an answer may take because the broker waits; TypeError for no number."""
    check_whole("wait_ms", wait_ms)
    assert isinstance(wait_ms, int)
    return min(max(0, wait_ms) / 1000, ANSWER_WAIT_S_MAX)

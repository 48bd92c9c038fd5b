"""What the answer of a receiver means for the message and for its target.

Standard Webhooks 1.0 decides: 2xx acks, 410 disables the target, 429 and 502 to 504 throttle it,
all else is a failed attempt; a redirect is one too, since it is never followed. A receiver that
will never take a message says so by the header `webhook-delivery: abort-message`, and the message
becomes a dead letter at once.
"""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import IntEnum
from http import HTTPStatus
from typing import Final, NamedTuple

from delaylog.contract.calls.shapes import REASON_BYTES_MAX

REFUSAL_HEADER: Final = "webhook-delivery"
REFUSAL: Final = "abort-message"
RETRY_AFTER_MS_MAX: Final = 3_600_000
"""A receiver may silence its target for an hour at most; then the next attempt asks again."""
EXCERPT_BYTES: Final = 256
"""How much of a failed answer's body its reason has."""
_ANSWER: Final = "answer "
_THROTTLING: Final = frozenset((429, 502, 503, 504))


class Verdict(IntEnum):
    """What happens to the message and to its target."""

    ACKED = 1
    """The receiver has the message."""
    FAILED = 2
    """Retry the message by its backoff."""
    THROTTLED = 3
    """Retry it, and send nothing to the target for a while."""
    REFUSED = 4
    """Make the message a dead letter: its receiver will never take it."""
    GONE = 5
    """Retry it, and disable the target until an operator enables it."""


class Outcome(NamedTuple):
    """The result of one attempt."""

    verdict: Verdict
    reason: str = ""
    """Why it failed, at most 1 KiB; empty if it did not."""
    retry_after_ms: int | None = None
    """THROTTLED: the pause that the receiver asked for, in ms, capped; None: it named none."""
    unwell: bool = False
    """Whether the attempt is evidence that the target does not work at present."""


ACKED: Final = Outcome(Verdict.ACKED)


def judge(status: int, headers: Mapping[str, str], excerpt: bytes, now_ms: int) -> Outcome:
    """The outcome of an answer; names of `headers` are compared as the mapping compares them."""
    if 200 <= status < 300:
        return ACKED
    reason = _reason(status, excerpt)
    if headers.get(REFUSAL_HEADER, "").strip().lower() == REFUSAL:
        return Outcome(Verdict.REFUSED, reason)
    if status == HTTPStatus.GONE:
        return Outcome(Verdict.GONE, reason)
    if status in _THROTTLING:
        wait_ms = retry_after_ms(headers.get("retry-after", ""), now_ms)
        return Outcome(Verdict.THROTTLED, reason, wait_ms, unwell=status != 429)
    # What a receiver dislikes about one message says nothing about the next one.
    unwell = status >= 500 or status < 400 or status in (401, 403, 404, 405, 407, 408)
    return Outcome(Verdict.FAILED, reason, unwell=unwell)


def fault(error: BaseException, timeout_ms: int) -> Outcome:
    """The outcome of an attempt that got no answer."""
    if isinstance(error, TimeoutError):
        text = f"no answer within {timeout_ms} ms"
    else:
        text = f"no answer: {_cause(error)}"
    return Outcome(Verdict.FAILED, _cut(text), unwell=True)


def retry_after_ms(text: str, now_ms: int) -> int | None:
    """The wait of a header Retry-After (seconds or an HTTP date), capped; None if it is not one."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        # Longer numbers than this are capped anyway, and may take long to convert.
        return min(int(text[:9]) * 1_000, RETRY_AFTER_MS_MAX)
    try:
        at = parsedate_to_datetime(text)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        wait_ms = int(at.timestamp() * 1_000) - now_ms
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(wait_ms, 0), RETRY_AFTER_MS_MAX)


def _reason(status: int, excerpt: bytes) -> str:
    try:
        text = f"{_ANSWER}{status} {HTTPStatus(status).phrase}"
    except ValueError:
        text = f"{_ANSWER}{status}"
    if 300 <= status < 400:
        text += " (redirects are not followed)"
    said = _line(excerpt[:EXCERPT_BYTES].decode("utf-8", "replace"))
    return _cut(f"{text}: {said}" if said else text)


def without_excerpt(reason: str) -> str:
    """A reason for the log: what a receiver says may be a part of the message."""
    return reason.partition(": ")[0] if reason.startswith(_ANSWER) else reason


def _cause(error: BaseException) -> str:
    """The innermost cause that a client library wrapped, in its words."""
    if error.__cause__ is not None:
        return _cause(error.__cause__)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid: {getattr(error, 'verify_message', error)}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, OSError) and error.errno is not None and error.errno in errno.errorcode:
        return f"{os.strerror(error.errno)} ({errno.errorcode[error.errno]})"
    return _line(str(error)) or type(error).__name__


def _line(text: str) -> str:
    """Text of a stranger as one printable line."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _cut(text: str) -> str:
    return text.encode("utf-8", "replace")[:REASON_BYTES_MAX].decode("utf-8", "ignore")

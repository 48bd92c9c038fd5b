"""The one table of the codes of refusals.

Every interface translates a refusal by the row of its code: HTTP to a problem document (RFC 9457),
the Redis protocol to the first word of an error, the SDK to the class for the code
(client/errors.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A row of the table: one kind of refusal."""

    code: str
    """The stable name that clients see."""
    status: int
    """The HTTP status."""
    title: str
    transient: bool = False
    """Whether the same call may succeed later; an HTTP answer then has Retry-After."""

    @property
    def word(self) -> str:
        """The first word of the error in the Redis protocol."""
        if self.status == 400:
            return "ERR"
        return _REDIS_WORDS.get(self.code) or self.code.replace("_", "").upper()


_REDIS_WORDS: Final = {"unauthorized": "NOAUTH", "forbidden": "NOPERM"}
"""Redis has its own first words for these, by which clients recognise them."""
CODES: Final = {
    each.code: each
    for each in (
        ErrorCode("bad_request", 400, "The request is malformed"),
        ErrorCode("unauthorized", 401, "A token is needed"),
        ErrorCode("forbidden", 403, "The caller may not do this"),
        ErrorCode("unknown", 404, "There is no such thing"),
        ErrorCode("method", 405, "The method is not allowed here"),
        ErrorCode("timeout", 408, "The request did not arrive in time"),
        ErrorCode("conflict", 409, "The request contradicts what is there"),
        ErrorCode("too_late", 409, "Too late for that"),
        ErrorCode("gone", 410, "It is gone"),
        ErrorCode("too_large", 413, "Too large"),
        ErrorCode("target_too_long", 414, "The target of the request is too long"),
        ErrorCode("unsupported", 415, "The content type or encoding is not supported"),
        ErrorCode("misdirected", 421, "The request is not for this host"),
        ErrorCode("quota", 429, "A quota is used up", transient=True),
        ErrorCode("head_too_large", 431, "The head of the request is too large"),
        ErrorCode("internal", 500, "The broker failed"),
        ErrorCode("not_implemented", 501, "The method is not known"),
        ErrorCode("not_ready", 503, "Not ready", transient=True),
        ErrorCode("held", 503, "The broker is held", transient=True),
        ErrorCode("version", 505, "The version of HTTP is not supported"),
        ErrorCode("disk_full", 507, "The disk is full", transient=True),
    )
}

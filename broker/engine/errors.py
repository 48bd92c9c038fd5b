"""Refusals: nothing was done; the text says what to do instead. One table of their codes.

Every face tells a refusal by the row of its code: HTTP as a problem document (RFC 9457), the Redis
protocol by its first word, the SDK by the class of the code (client/errors.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A kind of refusal."""

    code: str
    """Its stable name."""
    status: int
    """Of HTTP."""
    title: str
    passes: bool = False
    """The same call may be taken later, so an answer says when to try again."""

    @property
    def word(self) -> str:
        """How an error of the Redis protocol begins."""
        return "ERR" if self.status == 400 else self.code.replace("_", "").upper()


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
        ErrorCode("unsupported", 415, "The content type or encoding is not supported"),
        ErrorCode("misdirected", 421, "The request is not for this host"),
        ErrorCode("quota", 429, "A quota is used up", passes=True),
        ErrorCode("not_ready", 503, "Not ready", passes=True),
        ErrorCode("disk_full", 507, "The disk is full", passes=True),
    )
}


class EngineError(Exception):
    """Base of refusals; `code` is a key of `CODES`."""

    code = "bad_request"

    def __init__(
        self, detail: str, *, field: str | None = None, item: int | None = None, **facts: Any
    ) -> None:
        self.detail = detail
        self.field = field
        self.item = item
        self.facts = facts
        super().__init__(detail)

    @property
    def kind(self) -> ErrorCode:
        """The row of its code."""
        return CODES[self.code]

    @property
    def members(self) -> dict[str, Any]:
        """What it says besides its text: the field and the item it is about, and facts."""
        told = {"field": self.field, "item": self.item, **self.facts}
        return {name: value for name, value in told.items() if value is not None}


class BadRequestError(EngineError):
    """The call is malformed: nothing was done; fix what `field` names."""


class TooLargeError(EngineError):
    """A size is over its limit: nothing was done."""

    code = "too_large"


class UnknownError(EngineError):
    """No such topic or message."""

    code = "unknown"


class ConflictError(EngineError):
    """The call contradicts what is there."""

    code = "conflict"


class GoneError(EngineError):
    """It has ended, and takes nothing any more; `facts["state"]` says how it ended."""

    code = "gone"


class QuotaRefusal(EngineError):
    """As many of them are there as may be: try again when one has ended."""

    code = "quota"


class DiskFullRefusal(EngineError):
    """There is no room for more messages; deliveries go on. Try again once space is back."""

    code = "disk_full"


class NotLeadingError(EngineError):
    """This node does not lead, or not any more. Ask the leader; what was under way may have come
    through or not, so send it again under its sequence.
    """

    code = "not_ready"

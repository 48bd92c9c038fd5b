"""Refusals of the engine: nothing was done; the text says what to do instead."""

from __future__ import annotations

from typing import Any


class EngineError(Exception):
    """Base of refusals; `code` is the stable name that edges translate."""

    code = "bad_request"

    def __init__(
        self, detail: str, *, field: str | None = None, item: int | None = None, **facts: Any
    ) -> None:
        self.detail = detail
        self.field = field
        self.item = item
        self.facts = facts
        super().__init__(detail)


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

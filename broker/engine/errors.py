"""Refusals of calls; each has a code of the table in `contract/error_codes.py`.

A refused call has changed nothing, except under NotLeadingError; under `internal`, which is a fault
of the broker, it may have.
"""

from __future__ import annotations

from typing import Any, Final

from delaylog.contract.error_codes import CODES, ErrorCode


class EngineError(Exception):
    """Base of the refusals; `code` is a key of `CODES`, `facts` are further members."""

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
        """What a refusal states besides its text: the field and item at fault, and the facts."""
        members = {"field": self.field, "item": self.item, **self.facts}
        return {name: value for name, value in members.items() if value is not None}


class BadRequestError(EngineError):
    """The call is malformed. Correct the member that `field` names."""


class TooLargeError(EngineError):
    """A size exceeds its limit. Send less at a time."""

    code = "too_large"


class UnknownError(EngineError):
    """The topic, group, message, claim or transaction of the call does not exist."""

    code = "unknown"


class ConflictError(EngineError):
    """The call contradicts the present state. Read the state before trying again."""

    code = "conflict"


class GoneError(EngineError):
    """The claim or transaction takes no more calls of this kind; `facts["state"]` is its state."""

    code = "gone"


class QuotaRefusal(EngineError):
    """The number of such objects is at its limit. Try again when one has ended."""

    code = "quota"


class HeldError(EngineError):
    """The broker is held, so it delivers nothing. Try again when an operator has released it."""

    code = "held"


class DiskFullRefusal(EngineError):
    """The disk has no room for more messages; deliveries go on. Try again once there is space."""

    code = "disk_full"


NO_LONGER_LEADS: Final = "this node no longer leads; ask the leader"


class NotLeadingError(EngineError):
    """This node does not lead, or has lost its leadership during the call. Call the leader. A call
    that was under way may have been carried out: repeat it only in an idempotent form, unless
    `facts["begun"]` is False.
    """

    code = "not_ready"

"""The errors of values that do not fit what is declared here."""

from __future__ import annotations


class BatchError(Exception):
    """A bulk body or batch column is malformed. Nothing was stored; fix the named column."""

    def __init__(self, detail: str, *, field: str | None = None, item: int | None = None) -> None:
        self.field = field
        self.item = item
        super().__init__(detail)


class MemberError(BatchError, ValueError):
    """A member of a request or a field of a message has a value that is not allowed.

    `what` says what is wrong without naming the member, for a protocol that names it differently.
    """

    def __init__(
        self, detail: str, *, field: str | None = None, item: int | None = None, what: str = ""
    ) -> None:
        self.what = what or detail
        super().__init__(detail, field=field, item=item)


class MemberTypeError(MemberError, TypeError):
    """A member of a request or a field of a message has a value of the wrong type."""

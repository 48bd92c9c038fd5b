"""The bookkeeping of a transaction with one writer. It makes no calls.

Bodies are numbered, so that staging a body again adds nothing.
"""

from __future__ import annotations

from uuid import uuid4

from delaylog.client.errors import ClientError


class StagedBodies:
    """One part of a transaction, with numbered bodies."""

    def __init__(self, transaction: str | None) -> None:
        self.id = transaction or uuid4().hex
        self.rows = 0
        self._number = 0
        self._open = False

    def begin(self) -> None:
        """Mark the transaction as open. ClientError if it is already open."""
        if self._open:
            raise ClientError(f"transaction {self.id} is open already")
        self._open = True
        self.rows = self._number = 0

    def next_number(self) -> int:
        """The number of the next body. ClientError outside the `with` block."""
        if not self._open:
            raise ClientError(f"transaction {self.id} is not open: stage inside of its `with`")
        number = self._number
        self._number += 1
        return number

    def end(self) -> list[dict[str, int]]:
        """Mark the transaction as ended. Returns the winners for the commit."""
        self._open = False
        return [{"part": 0, "attempt": 0, "rows": self.rows}] if self.rows else []

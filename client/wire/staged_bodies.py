"""What one writer of a transaction has staged so far, and in what order; no calls.

The one rule: bodies are numbered, so that one that is staged again adds nothing.
"""

from __future__ import annotations

from uuid import uuid4

from delaylog.client.errors import ClientError


class StagedBodies:
    """What one writer has staged: one part, its bodies numbered."""

    def __init__(self, transaction: str | None) -> None:
        self.id = transaction or uuid4().hex
        self.rows = 0
        self._number = 0
        self._open = False

    def begin(self) -> None:
        """It is open. ClientError when it was before."""
        if self._open:
            raise ClientError(f"transaction {self.id} is open already")
        self._open = True
        self.rows = self._number = 0

    def next_number(self) -> int:
        """The number of the next body. ClientError outside of the block."""
        if not self._open:
            raise ClientError(f"transaction {self.id} is not open: stage inside of its `with`")
        number = self._number
        self._number += 1
        return number

    def end(self) -> list[dict[str, int]]:
        """It is over; what a commit names."""
        self._open = False
        return [{"part": 0, "attempt": 0, "rows": self.rows}] if self.rows else []

"""A transaction that is open, and one that is committed and not published."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from delaylog.broker.engine.transactions.parts import PartTable
from delaylog.storage.log.transaction_frames import (
    RESULTS,
    PartArray,
)

ROW_BYTES: Final = 112 + 32
"""What a row takes in its hour beside its record: index entry and state."""


@dataclass(slots=True)
class OpenTransaction:
    """One that has not been decided."""

    number: int
    id: str
    began_ms: int
    ttl_ms: int
    """So long it stays open after each call about it."""
    expires_ms: int
    parts: PartTable = field(default_factory=PartTable)
    rows: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Unpublished:
    """One that was committed and whose rows are on their way into their hours."""

    number: int
    id: str
    decided_ms: int
    position: int
    """Of the COMMIT frame: where in the log its messages count as sent."""
    parts: PartArray
    """Those that won, in the order they are published in."""
    rows: int
    bytes: int
    discarded_rows: int
    published: int = 0
    """Rows that are through."""
    at: int = 0
    """The part that is next, or half done."""
    row: int = 0
    """Its next row."""
    counts: list[int] = field(default_factory=lambda: [0] * len(RESULTS))

    @property
    def done(self) -> bool:
        """Whether all rows are through."""
        return self.at == len(self.parts)

    @property
    def log_from(self) -> int:
        """Where the first part stands that is still needed."""
        return int(self.parts["position"][self.at])

    @property
    def debt_bytes(self) -> int:
        """About what its rows will still take on disk."""
        left = self.rows - self.published
        return self.bytes * left // max(self.rows, 1) + left * ROW_BYTES

"""An open transaction, and one that is committed and not published yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from delaylog.broker.engine.transactions.parts import PartTable
from delaylog.storage.log.transaction_frames import (
    RESULTS,
    PartArray,
)

ROW_BYTES: Final = 112 + 32
"""Bytes of a row in its hour besides its record: index entry and state."""
READ_BYTES_MAX: Final = 1 << 20
"""Bytes of small parts that are read together: more need as much memory as one large part."""
READ_PARTS_MAX: Final = 64
"""Parts that are read together: some 100 us each in a job, which delays the event loop."""


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that is not decided."""

    number: int
    id: str
    began_ms: int
    ttl_ms: int
    """How long it stays open after each call about it."""
    expires_ms: int
    parts: PartTable = field(default_factory=PartTable)
    rows: int = 0
    bytes: int = 0
    owner: str = ""
    """The principal that began it; empty where nobody had to authenticate."""


@dataclass(slots=True)
class Unpublished:
    """A committed transaction whose rows are being published."""

    number: int
    id: str
    decided_ms: int
    position: int
    """Position of the COMMIT frame, at which its messages count as sent."""
    parts: PartArray
    """The parts that won, in the order of publication."""
    rows: int
    bytes: int
    discarded_rows: int
    published: int = 0
    """Rows published so far."""
    at: int = 0
    """Index of the next part, or the one that is partly published."""
    row: int = 0
    """Its next row."""
    counts: list[int] = field(default_factory=lambda: [0] * len(RESULTS))

    @property
    def done(self) -> bool:
        """Whether all rows are published."""
        return self.at == len(self.parts)

    @property
    def log_from(self) -> int:
        """Log position of the first part that is still needed."""
        return int(self.parts["position"][self.at])

    def next_parts(self) -> list[int]:
        """Log positions of the next part and of the small ones behind it, to be read together."""
        parts = self.parts[self.at : self.at + READ_PARTS_MAX]
        ends = np.cumsum(parts["bytes"], dtype=np.int64)
        count = int(np.searchsorted(ends, READ_BYTES_MAX, side="right"))
        return [int(position) for position in parts["position"][: max(count, 1)]]

    @property
    def debt_bytes(self) -> int:
        """Approximate disk space that its rows will still take."""
        left = self.rows - self.published
        return self.bytes * left // max(self.rows, 1) + left * ROW_BYTES

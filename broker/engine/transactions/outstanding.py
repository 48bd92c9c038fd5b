"""Outstanding rows of each topic: staged by transactions, or committed and not published yet.

They are counted with the bytes of their parts, so that quotas include them before they are sent,
and so that a topic with outstanding rows counts as in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from delaylog.storage.columns.questions import alike
from delaylog.storage.log.transaction_frames import PartArray


@dataclass(slots=True)
class Outstanding:
    """Outstanding rows of one topic."""

    rows: int = 0
    bytes: int = 0
    staged_rows: int = 0
    """Rows in open transactions."""


NOTHING_OUTSTANDING: Final = Outstanding()


class OutstandingTable:
    """Outstanding rows by topic number."""

    def __init__(self) -> None:
        self._outstanding: dict[int, Outstanding] = {}

    def __contains__(self, topic: int) -> bool:
        return topic in self._outstanding

    def of(self, topic: int) -> Outstanding:
        """The outstanding rows of a topic. The caller must not change the result."""
        return self._outstanding.get(topic, NOTHING_OUTSTANDING)

    def add(self, topic: int, rows: int, size: int, *, staged: int = 0) -> None:
        """Add to the outstanding rows of a topic; arguments may be negative."""
        outstanding = self._outstanding.setdefault(topic, Outstanding())
        outstanding.rows += rows
        outstanding.bytes += size
        outstanding.staged_rows += staged
        if outstanding.rows == 0:
            assert (outstanding.bytes, outstanding.staged_rows) == (0, 0), (
                "each row was counted with its bytes"
            )
            del self._outstanding[topic]

    def add_parts(self, parts: PartArray, *, staged: bool = False) -> None:
        """Add the rows of parts."""
        for topic, rows, size in by_topic(parts):
            self.add(topic, rows, size, staged=rows if staged else 0)

    def remove_staged(self, parts: PartArray) -> None:
        """Subtract parts of a transaction that is not open any more."""
        for topic, rows, size in by_topic(parts):
            self.add(topic, -rows, -size, staged=-rows)


def by_topic(parts: PartArray) -> Iterator[tuple[int, int, int]]:
    """(topic number, rows, bytes) of these parts, for each topic."""
    topics = parts["topic"]
    if len(parts) == 0:
        return
    if alike(topics):
        yield int(topics[0]), int(parts["rows"].sum()), int(parts["bytes"].sum())
        return
    found, which = np.unique(topics, return_inverse=True)
    rows, sizes = np.zeros(len(found), np.int64), np.zeros(len(found), np.int64)
    np.add.at(rows, which, parts["rows"])
    np.add.at(sizes, which, parts["bytes"])
    yield from zip(found.tolist(), rows.tolist(), sizes.tolist(), strict=True)


def bytes_below(part: np.void, row: int) -> int:
    """Approximate bytes of rows [0, row) of a part; exact for all rows."""
    return row * int(part["bytes"]) // int(part["rows"])

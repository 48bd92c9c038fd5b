"""What transactions hold of each topic: rows that are staged, or committed and on their way.

Counted with the bytes of their parts, so that a quota knows them before one was sent, and so that a
topic of which something is held passes for used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from delaylog.storage.columns.questions import alike
from delaylog.storage.log.transaction_frames import PartArray


@dataclass(slots=True)
class Held:
    """Of one topic."""

    rows: int = 0
    bytes: int = 0
    staged_rows: int = 0
    """Those in open transactions."""


NOTHING_HELD: Final = Held()


class HeldTable:
    """By topic number."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}

    def __contains__(self, topic: int) -> bool:
        return topic in self._held

    def of(self, topic: int) -> Held:
        """Not to be changed."""
        return self._held.get(topic, NOTHING_HELD)

    def add(self, topic: int, rows: int, size: int, *, staged: int = 0) -> None:
        """So much more, or less."""
        held = self._held.setdefault(topic, Held())
        held.rows += rows
        held.bytes += size
        held.staged_rows += staged
        if held.rows == 0:
            assert (held.bytes, held.staged_rows) == (0, 0), "each row was counted with its bytes"
            del self._held[topic]

    def add_parts(self, parts: PartArray, *, staged: bool = False) -> None:
        """All of these parts."""
        for topic, rows, size in by_topic(parts):
            self.add(topic, rows, size, staged=rows if staged else 0)

    def remove_staged(self, parts: PartArray) -> None:
        """These parts are open no more."""
        for topic, rows, size in by_topic(parts):
            self.add(topic, -rows, -size, staged=-rows)


def by_topic(parts: PartArray) -> Iterator[tuple[int, int, int]]:
    """(topic number, rows, bytes) of these parts, in one pass however many topics there are."""
    topics = parts["topic"]
    if len(parts) == 0:
        return
    if alike(topics):
        yield int(topics[0]), int(parts["rows"].sum()), int(parts["bytes"].sum())
        return
    found, places = np.unique(topics, return_inverse=True)
    rows, sizes = np.zeros(len(found), np.int64), np.zeros(len(found), np.int64)
    np.add.at(rows, places, parts["rows"])
    np.add.at(sizes, places, parts["bytes"])
    yield from zip(found.tolist(), rows.tolist(), sizes.tolist(), strict=True)


def bytes_below(part: np.void, row: int) -> int:
    """About what rows [0, row) of a part take; all of it for all of them."""
    return row * int(part["bytes"]) // int(part["rows"])

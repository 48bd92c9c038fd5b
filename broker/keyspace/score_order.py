"""Members by score, ties by their bytes: a sorted list of (score, member).

A *place* is how many entries come before it; it holds until the next change. What a search finds
is the first entry that is not less; so `(score, b"")` is before all that have this score.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from sortedcontainers import SortedList

Entry: TypeAlias = tuple[float, bytes]
Place: TypeAlias = int

_ALL: Final = 1 << 62


class ScoreOrder:
    """Entries (score, member); each member stands here once, which the owner sees to."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries: SortedList[Entry] = SortedList(entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def copy(self) -> ScoreOrder:
        """The same entries, apart from these."""
        return ScoreOrder(self._entries)

    # ------------------------------------------------------------------ changing

    def add(self, score: float, member: bytes) -> None:
        """Put an entry in."""
        self._entries.add((score, member))

    def update(self, entries: Iterable[Entry]) -> None:
        """Put many in, none of which is there."""
        self._entries.update(entries)

    def remove(self, score: float, member: bytes) -> None:
        """Take an entry out, which is there."""
        self._entries.remove((score, member))

    def pop(self, *, greatest: bool) -> Entry:
        """Take the last or the first entry out."""
        entry: Entry = self._entries.pop(-1 if greatest else 0)
        return entry

    def delete(self, start: Place, stop: Place) -> None:
        """Take out what lies from place to place."""
        del self._entries[start:stop]

    # ------------------------------------------------------------------ places

    def find(self, score: float, member: bytes = b"") -> Place:
        """The place of the first entry that is not less."""
        place: Place = self._entries.bisect_left((score, member))
        return place

    @property
    def end(self) -> Place:
        """The place behind everything."""
        return len(self._entries)

    # ------------------------------------------------------------------ reading

    def walk(self, start: Place, stop: Place, offset: int = 0, most: int = _ALL) -> list[Entry]:
        """Up to `most` entries from place to place, behind the first `offset`."""
        start += offset
        return list(self._entries.islice(start, min(stop, start + most))) if start < stop else []

    def walk_back(
        self, start: Place, stop: Place, offset: int = 0, most: int = _ALL
    ) -> list[Entry]:
        """The same from `stop` down to `start`."""
        stop -= offset
        first = max(start, stop - most)
        return list(self._entries.islice(first, stop, reverse=True)) if first < stop else []

    def following(self, low: Entry, offset: int, most: int) -> list[Entry]:
        """Up to `most` entries that are not less than `low`, behind the first `offset` of them.

        Nothing is counted that lies before, which a walk between places has to do.
        """
        count = len(self._entries)
        # Numbers of clients may be larger than what islice counts to.
        offset, most = min(offset, count), min(most, count)
        return list(islice(self._entries.irange(low), offset, offset + most))

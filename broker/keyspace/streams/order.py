"""A mapping from ids to things, in the order of ids.

Lookups are those of a dict; the order stands in chunks, so that putting, removing and finding a
place cost a binary search and a move within one chunk.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

_CHUNK: Final = 512

Held = TypeVar("Held")


def _last(chunk: list[int]) -> int:
    return chunk[-1]


class IdOrder(Generic[Held]):
    """Ids, each with something."""

    __slots__ = ("_chunks", "_held")

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self._chunks: list[list[int]] = []
        """Sorted, none of them empty."""

    def __len__(self) -> int:
        return len(self._held)

    def get(self, number: int) -> Held | None:
        """What stands under an id."""
        return self._held.get(number)

    def put(self, number: int, held: Held) -> None:
        """Put something under an id, instead of what stood there."""
        if number not in self._held:
            self._place(number)
        self._held[number] = held

    def _place(self, number: int) -> None:
        chunks = self._chunks
        if not chunks:
            chunks.append([number])
            return
        at = len(chunks) - 1
        if number > chunks[-1][-1]:
            if len(chunks[-1]) >= _CHUNK:
                chunks.append([number])
            else:
                chunks[-1].append(number)
            return
        at = bisect_left(chunks, number, key=_last)
        chunk = chunks[at]
        chunk.insert(bisect_left(chunk, number), number)
        if len(chunk) > _CHUNK:
            chunks[at : at + 1] = [chunk[: _CHUNK // 2], chunk[_CHUNK // 2 :]]

    def remove(self, number: int) -> Held | None:
        """Remove an id; returns what stood there."""
        held = self._held.pop(number, None)
        if held is not None:
            chunks = self._chunks
            at = bisect_left(chunks, number, key=_last)
            chunk = chunks[at]
            del chunk[bisect_left(chunk, number)]
            if not chunk:
                del chunks[at]
        return held

    def starting(self, number: int = 0) -> Iterator[tuple[int, Held]]:
        """Everything from an id on; nothing may be put or removed meanwhile."""
        held, chunks = self._held, self._chunks
        first = bisect_left(chunks, number, key=_last)
        for at in range(first, len(chunks)):
            chunk = chunks[at]
            for place in range(bisect_left(chunk, number) if at == first else 0, len(chunk)):
                found = chunk[place]
                yield found, held[found]

    def first(self) -> int:
        """The smallest id; there must be one."""
        return self._chunks[0][0]

    def last(self) -> int:
        """The largest id; there must be one."""
        return self._chunks[-1][-1]

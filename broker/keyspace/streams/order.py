"""A mapping from ids to things, in the order of ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from sortedcontainers import SortedDict

Held = TypeVar("Held")


class IdOrder(Generic[Held]):
    """Ids, each with something."""

    def __init__(self) -> None:
        self._held: SortedDict[int, Held] = SortedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, number: int) -> Held | None:
        """What stands under an id."""
        held: Held | None = self._held.get(number)
        return held

    def put(self, number: int, held: Held) -> None:
        """Put something under an id, instead of what stood there."""
        self._held[number] = held

    def remove(self, number: int) -> Held | None:
        """Remove an id; returns what stood there."""
        held: Held | None = self._held.pop(number, None)
        return held

    def starting(self, number: int = 0) -> Iterator[tuple[int, Held]]:
        """Everything from an id on; nothing may be put or removed meanwhile."""
        held = self._held
        return ((found, held[found]) for found in held.irange(number))

    def first(self) -> int:
        """The smallest id; there must be one."""
        return int(self._held.peekitem(0)[0])

    def last(self) -> int:
        """The largest id; there must be one."""
        return int(self._held.peekitem()[0])

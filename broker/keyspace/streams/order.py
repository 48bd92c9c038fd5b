"""A mapping from ids to values, ordered by id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from sortedcontainers import SortedDict

Value = TypeVar("Value")


class IdOrder(Generic[Value]):
    """Values by id."""

    def __init__(self) -> None:
        self._values: SortedDict[int, Value] = SortedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, number: int) -> Value | None:
        """Return the value of an id, or None."""
        value: Value | None = self._values.get(number)
        return value

    def put(self, number: int, value: Value) -> None:
        """Set the value of an id."""
        self._values[number] = value

    def remove(self, number: int) -> Value | None:
        """Remove an id; returns its value, or None."""
        value: Value | None = self._values.pop(number, None)
        return value

    def starting(self, number: int = 0) -> Iterator[tuple[int, Value]]:
        """Iterate over the ids from `number` on; nothing may be put or removed meanwhile."""
        value = self._values
        return ((found, value[found]) for found in value.irange(number))

    def first(self) -> int:
        """The smallest id; there must be one."""
        return int(self._values.peekitem(0)[0])

    def last(self) -> int:
        """The largest id; there must be one."""
        return int(self._values.peekitem()[0])

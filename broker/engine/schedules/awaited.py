"""Messages for which buffered firings wait: a hint of a leader, which no file stores.

When one of them ends, its schedule is looked at. A schedule that is dropped is forgotten, so the
hint does not grow by schedules that come and go while their messages live.
"""

from __future__ import annotations

from collections.abc import Iterable


class AwaitedMessages:
    """Which message each schedule with a buffered firing waits for."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        """Number of the schedule, by origin of the message."""
        self._origins: dict[int, list[int]] = {}
        """Origins, by number of the schedule: its message has one in each group."""

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, origin: int, number: int) -> None:
        """Enter a message that a schedule waits for."""
        if self._numbers.get(origin) != number:
            self._numbers[origin] = number
            self._origins.setdefault(number, []).append(origin)

    def ended(self, origins: Iterable[int]) -> set[int]:
        """The schedules that waited for these messages, which are forgotten.

        Who looks at a schedule enters again what it still waits for.
        """
        numbers = {self._numbers[origin] for origin in self._numbers.keys() & set(origins)}
        for number in numbers:
            self.forget(number)
        return numbers

    def forget(self, number: int) -> None:
        """Forget what a schedule waits for."""
        for origin in self._origins.pop(number, ()):
            self._numbers.pop(origin, None)

    def schedules(self) -> list[int]:
        """The numbers of all schedules that wait."""
        return list(self._origins)

    def clear(self) -> None:
        """Forget everything: another leadership begins or ends."""
        self._numbers.clear()
        self._origins.clear()

"""Which state columns of a store have pages that are newer than their files, and how many.

A look costs what changed since the last one, however many columns there are.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Paged(Protocol):
    """A column in pages."""

    @property
    def dirty_pages(self) -> int:
        """How many of them are newer than its file."""


C = TypeVar("C", bound=Paged)


class DirtyColumns(Generic[C]):
    """Columns note themselves when their pages change. All methods belong to the store's thread."""

    def __init__(self) -> None:
        self._changed: set[C] = set()
        self._pages: dict[C, int] = {}
        self._total = 0

    def note(self, column: C) -> None:
        """Its set of dirty pages has changed."""
        self._changed.add(column)

    @property
    def pages(self) -> int:
        """Dirty pages of all columns."""
        self._look()
        return self._total

    @property
    def count(self) -> int:
        """How many columns have dirty pages."""
        self._look()
        return len(self._pages)

    def columns(self) -> list[C]:
        """Those with dirty pages."""
        self._look()
        return list(self._pages)

    def _look(self) -> None:
        changed, self._changed = self._changed, set()
        for column in changed:
            count = column.dirty_pages
            self._total += count - self._pages.get(column, 0)
            if count:
                self._pages[column] = count
            else:
                self._pages.pop(column, None)

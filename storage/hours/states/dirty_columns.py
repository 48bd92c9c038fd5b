"""The state columns of a store that have dirty pages, and the number of these pages.

A query examines only the columns that changed since the last one.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Paged(Protocol):
    """A column in pages."""

    @property
    def dirty_pages(self) -> int:
        """Number of pages that are newer than the file."""


C = TypeVar("C", bound=Paged)


class DirtyColumns(Generic[C]):
    """Columns add themselves to `changed`. All of it belongs to the store's thread."""

    def __init__(self) -> None:
        self.changed: set[C] = set()
        """Columns whose set of dirty pages may have changed since the last query."""
        self._pages: dict[C, int] = {}
        self._total = 0

    def forget(self, column: C) -> None:
        """The column is closed."""
        self.changed.discard(column)
        self._total -= self._pages.pop(column, 0)

    @property
    def pages(self) -> int:
        """Dirty pages of all columns."""
        self._update()
        return self._total

    @property
    def count(self) -> int:
        """Number of columns with dirty pages."""
        self._update()
        return len(self._pages)

    def columns(self) -> list[C]:
        """The columns with dirty pages."""
        self._update()
        return list(self._pages)

    def _update(self) -> None:
        changed, self.changed = self.changed, set()
        for column in changed:
            count = column.dirty_pages
            self._total += count - self._pages.get(column, 0)
            if count:
                self._pages[column] = count
            else:
                self._pages.pop(column, None)

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
    """Columns call `note` when their pages change. All methods belong to the store's thread."""

    def __init__(self) -> None:
        self._changed: set[C] = set()
        self._pages: dict[C, int] = {}
        self._total = 0

    def note(self, column: C) -> None:
        """Note that the column's set of dirty pages has changed."""
        self._changed.add(column)

    def forget(self, column: C) -> None:
        """The column is closed."""
        self._changed.discard(column)
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
        changed, self._changed = self._changed, set()
        for column in changed:
            count = column.dirty_pages
            self._total += count - self._pages.get(column, 0)
            if count:
                self._pages[column] = count
            else:
                self._pages.pop(column, None)

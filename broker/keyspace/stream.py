"""A stream: entries by id, and the groups that read them."""

from __future__ import annotations


class StreamValue:
    """Entries of fields, ordered by (ms, sequence)."""

    __slots__ = ()

    def __len__(self) -> int:
        return 0

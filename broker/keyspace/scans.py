"""Cursors of SCAN, HSCAN, SSCAN and ZSCAN, over snapshots of names.

Cursor 0 takes a snapshot of the names; a later cursor says which snapshot and how far it was read.
So what is there from the first call to the last is given exactly once. A cursor whose snapshot is
no longer kept begins again: names come twice then, but none is missed. The caller drops names that
have gone meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

_OFFSET_BITS: Final = 32
_NUMBER_BITS: Final = 20
"""Together below 2**53: some clients read cursors as doubles."""
_SNAPSHOTS_MAX: Final = 64
_NAMES_MAX: Final = 16_000_000
"""So many names in all snapshots together (8 bytes each) ..."""
_SNAPSHOTS_MIN: Final = 4
"""... but so many snapshots are always kept, that a few scans of a huge keyspace come to an end."""
_PICKS_MAX: Final = 64


@dataclass(slots=True, eq=False)
class _Snapshot:
    """Names of one collection at one moment."""

    owner: Collection[bytes]
    dirty: int
    names: list[bytes]
    readers: int = 1
    """How many began with it and have not come to its end."""


class Scans:
    """The snapshots of an executor, least recently used first."""

    def __init__(self, first: int) -> None:
        # A random start: cursors that outlived a restart must not meet a snapshot.
        self._next = first % (1 << _NUMBER_BITS)
        self._snapshots: dict[int, _Snapshot] = {}
        self._names = 0
        """In all snapshots."""
        self._sample: _Snapshot | None = None
        """What `pick` picks from."""

    def __len__(self) -> int:
        return len(self._snapshots)

    def read(
        self, owner: Collection[bytes], dirty: int, cursor: int, count: int
    ) -> tuple[int, Sequence[bytes]]:
        """The next names of `owner` (a dict by its keys, a set), and the cursor behind them.

        `owner` is known by its identity: a key that got another value begins again. `dirty` is the
        keyspace's count of changes: scans that begin without a change in between share a snapshot.
        """
        number, offset = cursor >> _OFFSET_BITS, cursor & (1 << _OFFSET_BITS) - 1
        snapshot = self._snapshots.pop(number, None) if cursor else None
        if snapshot is not None and snapshot.owner is not owner:
            self._snapshots[number] = snapshot
            snapshot = None
        if snapshot is None:
            if len(owner) <= count:
                return 0, list(owner)
            number, snapshot = self._begin(owner, dirty)
            offset = 0
        end = offset + count
        names = snapshot.names[offset:end]
        if end < len(snapshot.names):
            self._snapshots[number] = snapshot
            return number << _OFFSET_BITS | end, names
        snapshot.readers -= 1
        if snapshot.readers > 0:
            self._snapshots[number] = snapshot
        else:
            self._names -= len(snapshot.names)
        return 0, names

    def pick(self, owner: Collection[bytes], dirty: int, random: Random) -> bytes | None:
        """A random name of a large collection (None: it is empty), about as likely as any other.

        Of a dict nothing can be picked at once. A list of its names is kept while few changes were
        made, so a name of the last changes comes later only.
        """
        while owner:
            kept = self._sample
            if (
                kept is None
                or kept.owner is not owner
                or (dirty != kept.dirty and (dirty - kept.dirty) * 8 > len(kept.names))
            ):
                kept = self._sample = _Snapshot(owner, dirty, list(owner))
            for _ in range(_PICKS_MAX):
                name = kept.names[random.randrange(len(kept.names))]
                if name in owner:
                    return name
            self._sample = None
        return None

    def _begin(self, owner: Collection[bytes], dirty: int) -> tuple[int, _Snapshot]:
        """A snapshot of now; it is not in the table."""
        for number, snapshot in self._snapshots.items():
            if snapshot.owner is owner and snapshot.dirty == dirty:
                del self._snapshots[number]
                snapshot.readers += 1
                return number, snapshot
        snapshot = _Snapshot(owner, dirty, list(owner))
        self._names += len(snapshot.names)
        kept = self._snapshots
        while len(kept) >= _SNAPSHOTS_MAX or (
            self._names > _NAMES_MAX and len(kept) >= _SNAPSHOTS_MIN
        ):
            self._names -= len(kept.pop(next(iter(kept))).names)
        # Cursor 0 means the beginning, so number 0 is never given out.
        self._next = self._next % ((1 << _NUMBER_BITS) - 1) + 1
        while self._next in kept:
            self._next = self._next % ((1 << _NUMBER_BITS) - 1) + 1
        return self._next, snapshot

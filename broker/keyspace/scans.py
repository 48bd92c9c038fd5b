"""Cursors of SCAN, HSCAN, SSCAN and ZSCAN, over snapshots of names.

Cursor 0 takes a snapshot of the names; a later cursor encodes the snapshot and the offset in it. So
a name that exists from the first call to the last is returned exactly once. A cursor whose snapshot
was evicted starts again: names are repeated then, but none is missed. The caller skips names that
were removed meanwhile.
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
"""Limit of the names in all snapshots (8 bytes each) ..."""
_SNAPSHOTS_MIN: Final = 4
"""... but this number of snapshots is always kept, so that scans of a huge keyspace finish."""
_PICKS_MAX: Final = 64


@dataclass(slots=True, eq=False)
class _Snapshot:
    """Names of one collection at one moment."""

    owner: Collection[bytes]
    dirty: int
    names: list[bytes]
    readers: int = 1
    """Number of unfinished scans that began with it."""


class Scans:
    """The snapshots of an executor, least recently used first."""

    def __init__(self, first: int) -> None:
        # A random start, so that a cursor from before a restart finds no snapshot.
        self._next = first % (1 << _NUMBER_BITS)
        self._snapshots: dict[int, _Snapshot] = {}
        self._names = 0
        """Number of names in all snapshots."""
        self._sample: _Snapshot | None = None
        """The snapshot that `pick` picks from."""

    def __len__(self) -> int:
        return len(self._snapshots)

    def read(
        self, owner: Collection[bytes], dirty: int, cursor: int, count: int
    ) -> tuple[int, Sequence[bytes]]:
        """Return the next cursor and the next names of `owner`, which is a dict or a set.

        `owner` is compared by identity: a key with a new value starts again. `dirty` is the number
        of changes of the keyspace: scans that begin without a change in between share a snapshot.
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
        """Return a random name of a large collection, about uniformly; None if it is empty.

        A dict has no random access. A list of its names is kept until an eighth of them may have
        changed, so a name that was added recently may not be picked yet.
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
        """Take a snapshot, or share one; it is removed from the table until it was read."""
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

"""Loads a snapshot, or only checks it for corruption."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgpack

from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.snapshots.kinds import BY_NUMBER, STRING, Kind
from delaylog.broker.keyspace.snapshots.layout import Chunks, Read, SnapshotError, What
from delaylog.broker.keyspace.snapshots.writing import Summary
from delaylog.broker.keyspace.values.kinds import TYPE_NAMES, Value

_FREEZE_KEYS: Final = 100_000
"""From this number of keys on, loaded objects are excluded from garbage collection: a full
collection would scan them all, find no garbage, and block the process for a noticeable time.
"""


@contextmanager
def _no_collector(keyspace: Keyspace) -> Iterator[None]:
    """Pause the garbage collector: scanning a million live objects doubles the load time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            if sum(len(database.values) for database in keyspace.databases) >= _FREEZE_KEYS:
                gc.freeze()
            gc.enable()


def load_snapshot(keyspace: Keyspace, read: Read) -> Summary:
    """Load into an empty keyspace. Raises SnapshotError; the keyspace is unusable then."""
    chunks = Chunks(read)
    filler = _Filler(keyspace)
    with _no_collector(keyspace):
        while True:
            at = chunks.offset
            try:
                end = filler.take(chunks.next())
            except (ValueError, TypeError, LookupError, msgpack.UnpackException) as error:
                raise SnapshotError(f"an invalid chunk ({error})", at) from None
            if end is not None:
                break
    keys = sum(len(database.values) for database in keyspace.databases)
    if end != (keys, len(keyspace.libraries)):
        raise SnapshotError("an end mark with wrong counts", at)
    chunks.ended()
    return Summary(chunks.position, *end, size=chunks.offset, chunks=chunks.number)


class _Filler:
    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._last: tuple[Kind, Value] | None = None

    def take(self, parts: list[Any]) -> tuple[int, int] | None:
        """Load a chunk; returns the counts if it is the end mark."""
        what = parts[0]
        if what == What.VALUES:
            self._values(*parts[1:])
        elif what == What.MORE:
            if self._last is None:
                raise ValueError("no value to extend")
            kind, value = self._last
            kind.extend(value, parts[1])
        elif what == What.LIBRARIES:
            self._keyspace.libraries.update(parts[1])
        elif what == What.END:
            return parts[1], parts[2]
        else:
            raise ValueError(f"kind {what!r}")
        return None

    def _values(
        self,
        number: int,
        kind_number: int,
        keys: list[bytes],
        contents: list[Any],
        ends: list[int | None] | None,
    ) -> None:
        database = self._keyspace.databases[number]
        _, kind = BY_NUMBER[kind_number]
        made = contents if kind_number == STRING else [kind.make(content) for content in contents]
        database.values.update(zip(keys, made, strict=True))
        self._last = (kind, made[-1])
        if ends is not None:
            pairs = zip(keys, ends, strict=True)
            # Their expiry hints are made later, by `Keyspace.begin_expiring`.
            database.expires.update((key, at_ms) for key, at_ms in pairs if at_ms is not None)


class ChunkCheck:
    """Checks a snapshot chunk by chunk without building its values."""

    def __init__(self, read: Read) -> None:
        """Raises SnapshotError."""
        self._chunks = Chunks(read)
        self._over = False
        self.summary = Summary(self._chunks.position)

    def next(self) -> dict[str, Any] | None:
        """Describe the next chunk; None after the end mark. Raises SnapshotError."""
        if self._over:
            return None
        chunks, summary = self._chunks, self.summary
        at = chunks.offset
        parts = chunks.next()
        line: dict[str, Any] = {"offset": at, "bytes": chunks.offset - at}
        try:
            line["what"] = What(parts[0]).name
            if parts[0] == What.VALUES:
                line |= self._values(*parts[1:])
            elif parts[0] == What.LIBRARIES:
                summary.libraries += len(parts[1])
                line["names"] = [name.decode(errors="replace") for name in parts[1]]
            elif parts[0] == What.END:
                if parts[1:] != [summary.keys, summary.libraries]:
                    raise ValueError("wrong counts")
                line |= {"keys": parts[1], "libraries": parts[2]}
                self._over = True
                chunks.ended()
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise SnapshotError(f"an invalid chunk ({error})", at) from None
        summary.size, summary.chunks = chunks.offset, chunks.number
        return line

    def _values(
        self,
        database: int,
        kind: int,
        keys: list[bytes],
        contents: list[Any],
        ends: list[int | None] | None,
    ) -> dict[str, Any]:
        if len(keys) != len(contents) or (ends is not None and len(ends) != len(keys)):
            raise ValueError("keys without values")
        self.summary.keys += len(keys)
        cls, _ = BY_NUMBER[kind]
        volatile = sum(end is not None for end in ends or ())
        name = TYPE_NAMES[cls].decode()
        return {"database": database, "type": name, "keys": len(keys), "volatile": volatile}

"""Writes a keyspace to a file chunk by chunk, with a few chunks in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from delaylog.broker.keyspace.database import Database
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.snapshots.kinds import KINDS, PART_BYTES
from delaylog.broker.keyspace.snapshots.layout import What, Write, encode_chunk, encode_header


@dataclass(slots=True)
class Summary:
    """Counts of a snapshot."""

    position: int
    keys: int = 0
    libraries: int = 0
    size: int = 0
    chunks: int = 0


@dataclass(slots=True)
class _Pile:
    """Buffers values of one kind until a chunk is full."""

    keys: list[bytes] = field(default_factory=list)
    contents: list[Any] = field(default_factory=list)
    ends: list[int | None] = field(default_factory=list)
    volatile: bool = False
    size: int = 0


class _Writer:
    def __init__(self, write: Write, summary: Summary) -> None:
        self._write = write
        self._summary = summary

    def chunk(self, *parts: Any) -> None:
        summary = self._summary
        summary.chunks += 1
        for block in encode_chunk(summary.chunks, list(parts)):
            self._write(block)
            summary.size += len(block)

    def database(self, database: Database) -> None:
        number, expires = database.number, database.expires
        piles: dict[type, _Pile] = {}
        for key, value in database.values.items():
            kind = value.__class__
            pile = piles.get(kind)
            if pile is None:
                pile = piles[kind] = _Pile()
            parts: Iterator[tuple[Any, int]] = iter(())
            if kind is bytes:
                content, size = value, len(value)
            else:
                parts = KINDS[kind].parts(value)
                content, size = next(parts)
            pile.keys.append(key)
            pile.contents.append(content)
            pile.size += size + len(key) + 8
            if expires:
                at_ms = expires.get(key)
                pile.ends.append(at_ms)
                if at_ms is not None:
                    pile.volatile = True
            if pile.size >= PART_BYTES:
                self._flush(number, kind, piles.pop(kind))
                for content, _ in parts:
                    self.chunk(What.MORE, content)
        for kind, pile in piles.items():
            self._flush(number, kind, pile)

    def _flush(self, database: int, kind: type, pile: _Pile) -> None:
        ends = pile.ends if pile.volatile else None
        self.chunk(What.VALUES, database, KINDS[kind].number, pile.keys, pile.contents, ends)
        self._summary.keys += len(pile.keys)


def write_snapshot(keyspace: Keyspace, position: int, write: Write) -> Summary:
    """Write the keyspace as of the log position `position`."""
    summary = Summary(position)
    head = encode_header(position)
    write(head)
    summary.size = len(head)
    writer = _Writer(write, summary)
    for database in keyspace.databases:
        writer.database(database)
    if keyspace.libraries:
        summary.libraries = len(keyspace.libraries)
        writer.chunk(What.LIBRARIES, keyspace.libraries)
    writer.chunk(What.END, summary.keys, summary.libraries)
    return summary

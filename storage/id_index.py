"""Id index: client-chosen ids -> newest origin ref, on disk, with bounded memory.

A hint, never a truth: every hit is checked against the row (epoch tag, id, topic) before it
decides anything. Recent ids live in a dict; a checkpoint moves them into LMDB in sorted order.
The database is a cache of the delay indexes and says up to which log position it is whole; if it
is missing or behind, it is rebuilt from the rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import lmdb

from delaylog.storage.errors import DiskFullError
from delaylog.storage.layout import Int64Array, RowArray

_KEY: Final = struct.Struct(">IQ")
_REF: Final = struct.Struct("<q")
_POSITION: Final = b"position"
MAP_SIZE: Final = 1 << 36
REOPEN_PUTS: Final = 100_000
"""After so many puts the map is closed and opened again: its pages count as resident."""


class IdIndex:
    """(topic, id hash) -> ref."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._recent: dict[tuple[int, int], int] = {}
        self._flushing: dict[tuple[int, int], int] = {}
        self._touched = 0
        self._env = self._open()

    def _open(self) -> lmdb.Environment:
        return lmdb.open(
            self._path, map_size=MAP_SIZE, subdir=True, max_spare_txns=1, readahead=False
        )

    @contextmanager
    def _writing(self) -> Iterator[lmdb.Transaction]:
        """A write transaction; a full disk is told as one, and nothing was changed then."""
        try:
            with self._env.begin(write=True) as txn:
                yield txn
        except lmdb.DiskError as error:
            raise DiskFullError(f"no space for {self._path}: {error}") from error

    @property
    def position(self) -> int:
        """Every id of frames below this log position is in the database."""
        with self._env.begin() as txn:
            raw = txn.get(_POSITION)
        return int(_REF.unpack(raw)[0]) if raw else 0

    @property
    def recent_count(self) -> int:
        """Ids that wait in memory for the next checkpoint."""
        return len(self._recent)

    def put(self, topic: int, id_hash: int, ref: int) -> None:
        """Remember where the newest message of this id is."""
        self._recent[topic, id_hash] = ref

    def put_rows(self, rows: RowArray, refs: Int64Array) -> None:
        """Remember the rows that have a client-chosen id and are their own origin."""
        mask = (rows["id_hash"] != 0) & (rows["origin"] == refs)
        if mask.any():
            keys = zip(rows["topic"][mask].tolist(), rows["id_hash"][mask].tolist(), strict=True)
            self._recent.update(zip(keys, refs[mask].tolist(), strict=True))

    def get_many(self, topic: int, hashes: list[int]) -> list[int | None]:
        """A ref or None per hash."""
        recent, flushing = self._recent, self._flushing
        out: list[int | None] = []
        missing: list[int] = []
        for at, value in enumerate(hashes):
            ref = recent.get((topic, value))
            if ref is None and flushing:
                ref = flushing.get((topic, value))
            out.append(ref)
            if ref is None:
                missing.append(at)
        if missing:
            wanted = hashes
            with self._env.begin() as txn:
                for at in missing:
                    raw = txn.get(_KEY.pack(topic, wanted[at]))
                    if raw is not None:
                        out[at] = int(_REF.unpack(raw)[0])
            self._touched += len(missing)
        return out

    def begin_flush(self) -> None:
        """Set the recent ids aside for `write_flush`; look-ups still find them."""
        self._flushing, self._recent = {**self._flushing, **self._recent}, {}

    def write_flush(self, position: int) -> None:
        """Store what was set aside, durably. May run beside the loop."""
        items = sorted(
            (_KEY.pack(topic, value), _REF.pack(ref))
            for (topic, value), ref in self._flushing.items()
        )
        with self._writing() as txn:
            with txn.cursor() as cursor:
                cursor.putmulti(items)
            txn.put(_POSITION, _REF.pack(position))
        self._touched += len(items)

    def end_flush(self) -> None:
        """Forget what is stored now, and give the map's pages back when many were touched."""
        self._flushing = {}
        if self._touched >= REOPEN_PUTS:
            self._touched = 0
            self._env.close()
            self._env = self._open()

    def forget_rows(self, rows: RowArray) -> None:
        """Remove ids of rows whose hour has ended, unless a newer message took the id."""
        wanted = rows[rows["id_hash"] != 0]
        if len(wanted) == 0:
            return
        with self._writing() as txn:
            for topic, value, origin in zip(
                wanted["topic"].tolist(),
                wanted["id_hash"].tolist(),
                wanted["origin"].tolist(),
                strict=True,
            ):
                key = _KEY.pack(topic, value)
                if txn.get(key) == _REF.pack(origin):
                    txn.delete(key)

    def clear(self) -> None:
        """Empty the database before a rebuild."""
        with self._writing() as txn:
            txn.drop(self._env.open_db(txn=txn), delete=False)
        self._recent, self._flushing = {}, {}

    def close(self) -> None:
        """Close the database."""
        self._env.close()

"""Id index: client-chosen ids -> newest origin ref, on disk, with bounded memory.

A hint, never a truth: every hit is checked against the row (epoch tag, id, topic) before it
decides anything. Recent ids live in a dict; a checkpoint moves them into LMDB in sorted order.
The database is a cache of the delay indexes and says up to which log position it is whole; if it
is missing or behind, it is rebuilt from the rows.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

import lmdb

from delaylog.storage.errors import DiskFailedError, DiskFullError
from delaylog.storage.file_system import raise_disk_error
from delaylog.storage.layout import Int64Array, RowArray
from delaylog.storage.space_reserve import SpaceReserve

_KEY: Final = struct.Struct(">IQ")
_REF: Final = struct.Struct("<q")
_POSITION: Final = b"position"
_LOCK_BYTES: Final = 8192
"""LMDB's table of readers, of the size that it gives it."""
_PROBE_BYTES: Final = 1 << 20
"""Twice what LMDB writes in one call: less than this free is a full disk."""
MAP_SIZE: Final = 1 << 36
REOPEN_PUTS: Final = 100_000
"""After so many puts the map is closed and opened again: its pages count as resident."""


class IdIndex:
    """(topic, id hash) -> ref."""

    def __init__(self, path: str, *, reserve: SpaceReserve | None = None) -> None:
        """LMDB writes its file itself, so it falls back on the `reserve` here."""
        self._path = path
        self._reserve = reserve
        self._recent: dict[tuple[int, int], int] = {}
        self._flushing: dict[tuple[int, int], int] = {}
        self._touched = 0
        self._env = self._open()

    def _open(self) -> lmdb.Environment:
        while True:
            given = self._given()
            try:
                os.makedirs(self._path, exist_ok=True)
                # It is written through a map, where a full disk is SIGBUS. LMDB takes a file of
                # zeros for a new one.
                _allocate(f"{self._path}/lock.mdb", _LOCK_BYTES)
                return lmdb.open(
                    self._path, map_size=MAP_SIZE, subdir=True, max_spare_txns=1, readahead=False
                )
            except (lmdb.Error, DiskFullError) as error:
                self._room_or_raise(error, given)

    def _write(self, act: Callable[[lmdb.Transaction], None]) -> None:
        """`act` in a write transaction: all of it is stored, durably, or none.

        A full disk is told as one once there is no room left to make.
        """
        while True:
            given = self._given()
            try:
                with self._env.begin(write=True) as txn:
                    act(txn)
                return
            except lmdb.Error as error:
                self._room_or_raise(error, given)

    def _given(self) -> int:
        return self._reserve.given if self._reserve is not None else 0

    def _room_or_raise(self, error: lmdb.Error | DiskFullError, given: int) -> None:
        if self._says_full(error, given):
            if self._reserve is not None and self._reserve.give():
                return
            raise DiskFullError(f"no space for {self._path}: {error}") from error
        raise DiskFailedError(f"I/O failed on the id index {self._path}: {error}") from error

    def _says_full(self, error: lmdb.Error | DiskFullError, given: int) -> bool:
        """Whether a full disk is behind it.

        LMDB calls a short write an I/O error, and that is how a disk fills up. If somebody else
        gave up a step meanwhile, the disk was full even if it is not any more.
        """
        if isinstance(error, (lmdb.DiskError, DiskFullError)):
            return True
        if getattr(error, "code", None) != errno.EIO:
            return False
        return self._given() != given or not self._has_room()

    def _has_room(self) -> bool:
        probe = Path(self._path) / "probe"
        try:
            _allocate(str(probe), _PROBE_BYTES)
        except DiskFullError:
            return False
        finally:
            probe.unlink(missing_ok=True)
        return True

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

        def store(txn: lmdb.Transaction) -> None:
            with txn.cursor() as cursor:
                cursor.putmulti(items)
            txn.put(_POSITION, _REF.pack(position))

        self._write(store)
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
        topics, hashes = wanted["topic"].tolist(), wanted["id_hash"].tolist()
        origins = wanted["origin"].tolist()

        def forget(txn: lmdb.Transaction) -> None:
            for topic, value, origin in zip(topics, hashes, origins, strict=True):
                key = _KEY.pack(topic, value)
                if txn.get(key) == _REF.pack(origin):
                    txn.delete(key)

        self._write(forget)

    def clear(self) -> None:
        """Empty the database before a rebuild."""
        self._write(lambda txn: txn.drop(self._env.open_db(txn=txn), delete=False))
        self._recent, self._flushing = {}, {}

    def close(self) -> None:
        """Close the database."""
        self._env.close()


def _allocate(path: str, size: int) -> None:
    """Own the blocks of a file's first `size` bytes; it is made if need be."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)
    except OSError as error:
        raise_disk_error(error, path)

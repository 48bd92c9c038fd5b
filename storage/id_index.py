"""Id index: client-chosen ids -> newest origin ref, on disk, with bounded memory.

A hint, never a truth: every hit is checked against the row (epoch tag, id, topic) before it
decides anything. Recent ids live in memory; a checkpoint moves them into LMDB in sorted order.
The database is a cache of the delay indexes and says up to which log position it is whole; if it
is missing or behind, it is rebuilt from the rows. LMDB has no checksums: each value carries one
over its key and ref, and whatever LMDB itself finds wrong is damage of `data.mdb`. A damaged
database is marked, and the next start sets it aside and begins an empty one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import lmdb
import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from delaylog.storage.columns import every, some
from delaylog.storage.crc_columns import crc32c_rows
from delaylog.storage.errors import CorruptionError, DiskFailedError, DiskFullError
from delaylog.storage.file_system import FILE_MODE, make_folder, raise_disk_error
from delaylog.storage.layout import Int64Array, RowArray
from delaylog.storage.recent_ids import RecentIds
from delaylog.storage.space_reserve import SpaceReserve
from delaylog.storage.whole_rows import take_rows

KEY: Final = struct.Struct(">IQ")
_REF: Final = struct.Struct("<q")
_SUMMED_REF: Final = struct.Struct("<qI")
_KEY_COLUMNS: Final = np.dtype([("topic", ">u4"), ("hash", ">u8")])
_VALUE_COLUMNS: Final = np.dtype([("ref", "<i8"), ("crc", "<u4")])
assert (_KEY_COLUMNS.itemsize, _VALUE_COLUMNS.itemsize) == (KEY.size, _SUMMED_REF.size)
DAMAGED_MARK: Final = "damaged"
ASIDE: Final = ".damaged"
"""What is added to the name of a database that is set aside."""
POSITION_KEY: Final = b"position"
_LOCK_BYTES: Final = 8192
"""LMDB's table of readers, of the size that it gives it."""
_PROBE_BYTES: Final = 1 << 20
"""Twice what LMDB writes in one call: less than this free is a full disk."""
MAP_SIZE: Final = 1 << 36
_NO_DAMAGE: Final = (
    lmdb.LockError,
    lmdb.MemoryError,
    lmdb.ReadersFullError,
    lmdb.ReadonlyError,
    lmdb.TlsFullError,
)
"""What LMDB says of the machine. All else is its file, or the disk below it."""
PART_PUTS: Final = 32_768
"""Ids of one transaction: it keeps a copy of every page that it changes."""
PART_FORGETS: Final = 8_192
"""The same for ids that are removed: each may lie on a page of its own."""
OwnedIds = npt.NDArray[np.void]
OWNED_ID: Final = np.dtype([("topic", "<u4"), ("id_hash", "<u8"), ("origin", "<i8")])
"""An id and the origin of the message that it is removed for."""
REOPEN_TOUCHES: Final = 4_096
"""After so many gets and puts the map is closed and opened again: each may have touched a page
of its own, with which the kernel maps the fifteen around it, and all of those count as resident."""


def encode_ref(key: bytes, ref: int) -> bytes:
    """ref i64 | crc32c u32 over key and ref."""
    return _SUMMED_REF.pack(ref, crc32c(_REF.pack(ref), crc32c(key)))


def decode_ref(key: bytes, raw: bytes) -> int | None:
    """The ref of a value, or None if a byte of it or of its key is wrong."""
    if len(raw) != _SUMMED_REF.size:
        return None
    ref, crc = _SUMMED_REF.unpack(raw)
    return int(ref) if crc == crc32c(raw[: _REF.size], crc32c(key)) else None


def _keys(topics: npt.NDArray[np.uint32], hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.void]:
    """Keys of the database as a column."""
    keys = np.empty(len(hashes), _KEY_COLUMNS)
    keys["topic"], keys["hash"] = topics, hashes
    return keys


def _values(keys: npt.NDArray[np.void], refs: Int64Array) -> npt.NDArray[np.void]:
    """What `encode_ref` makes of each key and ref, as a column."""
    summed = np.empty((len(refs), KEY.size + _REF.size), np.uint8)
    summed[:, : KEY.size] = keys.view(np.uint8).reshape(-1, KEY.size)
    summed[:, KEY.size :] = refs.astype("<i8").view(np.uint8).reshape(-1, _REF.size)
    values = np.empty(len(refs), _VALUE_COLUMNS)
    values["ref"], values["crc"] = refs, crc32c_rows(summed)
    return values


def _by_key(owned: Sequence[OwnedIds]) -> OwnedIds:
    """All of them in the database's order."""
    whole = np.concatenate(owned)
    return take_rows(whole, np.lexsort((whole["id_hash"], whole["topic"])))


def _pieces(column: npt.NDArray[np.void]) -> list[bytes]:
    """A column's records, one each."""
    raw, size = column.tobytes(), column.dtype.itemsize
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def mark_damaged(path: str) -> None:
    """Have the next start set the database at `path` aside; nothing if that cannot be written."""
    with contextlib.suppress(OSError):
        os.close(
            os.open(f"{path}/{DAMAGED_MARK}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        )


def map_size(path: str) -> int:
    """Bytes of address space for the database: the disk is full before the map is."""
    stat = os.statvfs(path)
    return max(MAP_SIZE, 1 << (stat.f_blocks * stat.f_frsize - 1).bit_length())


class IdIndex:
    """(topic, id hash) -> ref."""

    def __init__(self, path: str, *, reserve: SpaceReserve | None = None) -> None:
        """LMDB writes its file itself, so it falls back on the `reserve` here."""
        self._path = path
        self._reserve = reserve
        self._recent = RecentIds()
        self._flushing = RecentIds()
        self._touched = 0
        self._storing = False
        """A job may be writing in another thread."""
        self.set_aside = ""
        """Why an earlier database was set aside at this start, if one was."""
        try:
            if os.path.exists(f"{path}/{DAMAGED_MARK}"):
                raise CorruptionError("it was found damaged", path=self._file, position=0)
            self._env = self._open()
            try:
                self._read_position()
            except CorruptionError:
                self._env.close()
                raise
        except CorruptionError as error:
            self._begin_anew(error)

    @property
    def _file(self) -> str:
        return f"{self._path}/data.mdb"

    def _begin_anew(self, error: CorruptionError) -> None:
        self.set_aside = str(error)
        shutil.rmtree(self._path + ASIDE, ignore_errors=True)
        os.rename(self._path, self._path + ASIDE)
        self._env = self._open()

    def _open(self) -> lmdb.Environment:
        while True:
            given = self._given()
            try:
                make_folder(self._path)
                # It is written through a map, where a full disk is SIGBUS. LMDB takes a file of
                # zeros for a new one.
                _allocate(f"{self._path}/lock.mdb", _LOCK_BYTES)
                return lmdb.open(
                    self._path,
                    map_size=map_size(self._path),
                    subdir=True,
                    max_spare_txns=1,
                    readahead=False,
                    mode=FILE_MODE,
                )
            except _NO_DAMAGE:
                raise
            except (lmdb.Error, DiskFullError) as error:
                self._room_or_raise(error, given)

    def _damaged(self, error: Exception | str) -> NoReturn:
        mark_damaged(self._path)
        detail = f"{error}; a restart makes the id index anew from the rows"
        raise CorruptionError(
            "a damaged id index", path=self._file, position=0, detail=detail
        ) from (error if isinstance(error, Exception) else None)

    @contextmanager
    def _reading(self) -> Iterator[lmdb.Transaction]:
        try:
            with self._env.begin() as txn:
                yield txn
        except _NO_DAMAGE:
            raise
        except lmdb.Error as error:
            self._damaged(error)

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
            except _NO_DAMAGE:
                raise
            except lmdb.MapFullError as error:
                # The disk grew: the map is as large as it was at the start. Nothing is damaged.
                raise DiskFullError(
                    f"{self._file} has reached the size that the disk had; start again: {error}"
                ) from error
            except lmdb.Error as error:
                self._room_or_raise(error, given)

    def _given(self) -> int:
        return self._reserve.given if self._reserve is not None else 0

    def _room_or_raise(self, error: lmdb.Error | DiskFullError, given: int) -> None:
        if self._says_full(error, given):
            if self._reserve is not None and self._reserve.give():
                return
            raise DiskFullError(f"no space for {self._path}: {error}") from error
        if (getattr(error, "code", None) or 0) > 0:
            # The system's word: the disk; or a rotten page number, which leads a write to nowhere.
            mark_damaged(self._path)
            raise DiskFailedError(f"I/O failed on the id index {self._file}: {error}") from error
        self._damaged(error)

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

    def _value(self, key: bytes, raw: bytes | memoryview) -> int:
        ref = decode_ref(key, bytes(raw))
        if ref is None:
            self._damaged(f"the value of {key.hex()} is not the one written")
        return ref

    def _read_position(self) -> int:
        with self._reading() as txn:
            raw = txn.get(POSITION_KEY)
        return self._value(POSITION_KEY, raw) if raw else 0

    @property
    def position(self) -> int:
        """Every id of frames below this log position is in the database."""
        return self._read_position()

    @property
    def recent_count(self) -> int:
        """Ids that wait in memory for the next checkpoint."""
        return self._recent.count

    def put_rows(self, rows: RowArray, refs: Int64Array) -> None:
        """Remember the rows that have a client-chosen id and are their own origin."""
        mask = (rows["id_hash"] != 0) & (rows["origin"] == refs)
        if some(mask):
            self._recent.put(rows["topic"][mask], rows["id_hash"][mask], refs[mask])

    def get_column(self, topic: int, hashes: npt.NDArray[np.uint64]) -> Int64Array:
        """A ref per hash, 0 where there is none."""
        out = self._recent.get(topic, hashes)
        missing = np.flatnonzero(out == 0)
        if len(missing) and self._flushing.count:
            out[missing] = self._flushing.get(topic, hashes[missing])
            missing = missing[out[missing] == 0]
        if len(missing):
            # In their order in the database neighbours share pages.
            missing = missing[np.argsort(hashes[missing])]
            keys = _keys(np.full(len(missing), topic, np.uint32), hashes[missing])
            for first in range(0, len(missing), REOPEN_TOUCHES):
                part = slice(first, first + REOPEN_TOUCHES)
                self._look_up(keys[part], missing[part], out)
        return out

    def _look_up(
        self, keys: npt.NDArray[np.void], places: npt.NDArray[np.intp], out: Int64Array
    ) -> None:
        """Put the refs of keys that are in the database into places of `out`."""
        pieces = _pieces(keys)
        with self._reading() as txn:
            raws = list(map(txn.get, pieces))
        held = np.array([raw is not None for raw in raws])
        found = [raw for raw in raws if raw is not None]
        values = b"".join(found)
        if len(values) == len(found) * _SUMMED_REF.size:
            columns = np.frombuffer(values, _VALUE_COLUMNS)
            if every(columns == _values(keys[held], columns["ref"])):
                out[places[held]] = columns["ref"]
                found = []
        if found:
            # One by one: what is wrong is named.
            for at, key, raw in zip(places.tolist(), pieces, raws, strict=True):
                if raw is not None:
                    out[at] = self._value(key, raw)
        self._touched += len(places)
        if not self._storing:
            self._give_back()

    def begin_flush(self) -> None:
        """Set the recent ids aside for `write_flush`; look-ups still find them."""
        if self._flushing.count:
            # An earlier flush was cut short.
            self._flushing.put(*self._recent.columns())
        else:
            self._flushing = self._recent
        self._recent = self._recent.successor()

    def write_flush(self, position: int) -> None:
        """Store what was set aside, durably, all at once; for whoever has nothing beside it."""
        for job in self.flush_jobs(position):
            job()

    def flush_jobs(self, position: int) -> Generator[Callable[[], None], None, None]:
        """Store what was set aside, durably: jobs for any thread, one after the other.

        A part is a stretch of the sorted keys, so that no page is written twice, and the pages
        that it touched are given back before the next one. The last job says that all is stored.
        """
        parts: list[tuple[npt.NDArray[np.void], Int64Array]] = []
        self._storing = True
        try:
            yield lambda: parts.append(self._sorted())
            keys, refs = parts[0]
            for first in range(0, len(refs), PART_PUTS):
                part = slice(first, first + PART_PUTS)
                yield partial(self._store, keys[part], refs[part])
                self._give_back()
            raw = encode_ref(POSITION_KEY, position)
            yield lambda: self._write(lambda txn: self._put_position(txn, raw))
        finally:
            self._storing = False

    def _sorted(self) -> tuple[npt.NDArray[np.void], Int64Array]:
        topics, hashes, refs = self._flushing.columns()
        order = np.lexsort((hashes, topics))
        return _keys(topics[order], hashes[order]), refs[order]

    def _store(self, keys: npt.NDArray[np.void], refs: Int64Array) -> None:
        items = list(zip(_pieces(keys), _pieces(_values(keys, refs)), strict=True))

        def put(txn: lmdb.Transaction) -> None:
            with txn.cursor() as cursor:
                cursor.putmulti(items)

        self._write(put)
        self._touched += len(items)

    @staticmethod
    def _put_position(txn: lmdb.Transaction, raw: bytes) -> None:
        txn.put(POSITION_KEY, raw)

    def _give_back(self) -> None:
        """Give the map's pages back when many were touched: they count as resident."""
        if self._touched >= REOPEN_TOUCHES:
            self._touched = 0
            self._env.close()
            self._env = self._open()

    def end_flush(self) -> None:
        """Forget what is stored now."""
        self._flushing = RecentIds()
        self._give_back()

    def forget_jobs(self, owned: Sequence[OwnedIds]) -> Generator[Callable[[], None], None, None]:
        """Remove ids, durably, unless a newer message took the id: jobs for any thread, one after
        the other.
        """
        if not owned:
            return
        parts: list[OwnedIds] = []
        self._storing = True
        try:
            yield lambda: parts.append(_by_key(owned))
            for first in range(0, len(parts[0]), PART_FORGETS):
                yield partial(self._forget, parts[0][first : first + PART_FORGETS])
                self._give_back()
        finally:
            self._storing = False

    def _forget(self, owned: OwnedIds) -> None:
        keys = _keys(owned["topic"], owned["id_hash"])
        pieces = _pieces(keys)
        stored = _pieces(_values(keys, owned["origin"]))
        origins = owned["origin"].tolist()

        def forget(txn: lmdb.Transaction) -> None:
            for key, value, origin in zip(pieces, stored, origins, strict=True):
                raw = txn.get(key)
                if raw == value or (raw is not None and self._value(key, raw) == origin):
                    txn.delete(key)

        self._write(forget)
        self._touched += len(pieces)

    def clear(self) -> None:
        """Empty the database before a rebuild."""
        self._write(lambda txn: txn.drop(self._env.open_db(txn=txn), delete=False))
        self._recent, self._flushing = RecentIds(), RecentIds()

    def close(self) -> None:
        """Close the database."""
        self._env.close()


def _allocate(path: str, size: int) -> None:
    """Own the blocks of a file's first `size` bytes; it is made if need be."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)
    except OSError as error:
        raise_disk_error(error, path)

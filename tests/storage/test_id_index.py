"""The id index: what was put is found, through flushes, reopening and rebuilding.

Method: a dict as the model under Hypothesis; the database is a real one in a temporary folder.
"""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.storage import id_index
from delaylog.storage.errors import DiskFailedError, DiskFullError
from delaylog.storage.id_forgetting import owned_ids
from delaylog.storage.id_index import IdIndex
from delaylog.storage.layout import INDEX_ENTRY, RowArray
from delaylog.storage.space_reserve import SpaceReserve
from tests.storage.small_disk import SmallDisk

TOPICS = st.integers(1, 2)
HASHES = st.integers(1, 6) | st.just(2**64 - 1)
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "begin", "write", "reopen", "clear"]), TOPICS, HASHES),
    max_size=25,
)


def put(ids: IdIndex, topic: int, hashed: int, ref: int) -> None:
    """Remember one message as the newest of its id."""
    ids.put_rows(rows_of([(topic, hashed, ref)]), np.array([ref]))


def found(ids: IdIndex, topic: int, hashes: list[int]) -> list[int | None]:
    """A ref or None per hash."""
    return [ref or None for ref in ids.get_column(topic, np.array(hashes, np.uint64)).tolist()]


def flush(ids: IdIndex, position: int) -> None:
    ids.begin_flush()
    ids.write_flush(position)
    ids.end_flush()


@given(STEPS)
@settings(max_examples=12, deadline=None)
def test_against_a_dict(steps: list[tuple[str, int, int]]) -> None:
    """Puts and flushes in any order; a look-up sees the newest put, on disk or not."""
    with tempfile.TemporaryDirectory() as folder:
        ids = IdIndex(folder)
        model: dict[tuple[int, int], int] = {}
        for ref, (step, topic, value) in enumerate(steps, 1):
            if step == "put":
                put(ids, topic, value, ref)
                model[topic, value] = ref
            elif step == "begin":
                ids.begin_flush()
            elif step == "write":
                ids.begin_flush()
                ids.write_flush(ref)
                ids.end_flush()
                assert ids.position == ref
                assert ids.recent_count == 0
            elif step == "clear":
                ids.clear()
                model.clear()
            else:
                flush(ids, ref)
                ids.close()
                ids = IdIndex(folder)
            wanted = [1, 2, 3, 4, 5, 6, 2**64 - 1]
            for number in (1, 2):
                expected = [model.get((number, hashed)) for hashed in wanted]
                assert found(ids, number, wanted) == expected
        ids.close()


def test_position_and_reopening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position is durable with the ids; giving the map back loses nothing."""
    monkeypatch.setattr(id_index, "REOPEN_TOUCHES", 2)
    monkeypatch.setattr(id_index, "PART_PUTS", 3)
    ids = IdIndex(str(tmp_path))
    assert ids.position == 0
    for number in range(1, 10):
        put(ids, 1, number, number * 7)
        flush(ids, number * 100)
    assert found(ids, 1, list(range(1, 11))) == [*(n * 7 for n in range(1, 10)), None]
    put(ids, 1, 3, 5)
    ids.close()
    ids = IdIndex(str(tmp_path))
    assert ids.position == 900
    assert found(ids, 1, [3]) == [21], "what was not flushed is the log's to bring back"
    ids.close()


def test_clear_resets_the_position(tmp_path: Path) -> None:
    """A rebuild that is cut half way is not taken for a whole index."""
    ids = IdIndex(str(tmp_path))
    put(ids, 1, 2, 3)
    flush(ids, 100)
    ids.begin_flush()
    ids.clear()
    assert ids.position == 0
    assert found(ids, 1, [2]) == [None]
    ids.close()


def rows_of(values: list[tuple[int, int, int]]) -> RowArray:
    rows = np.zeros(len(values), INDEX_ENTRY)
    rows["topic"] = [topic for topic, _, _ in values]
    rows["id_hash"] = [hashed for _, hashed, _ in values]
    rows["origin"] = [origin for _, _, origin in values]
    return rows


@pytest.mark.parametrize("flushed", [True, False])
def test_rows_in_and_out(tmp_path: Path, *, flushed: bool) -> None:
    """Only rows with an id that are their own origin go in; a newer holder of an id stays."""
    ids = IdIndex(str(tmp_path))
    rows = rows_of([(1, 10, 100), (1, 11, 101), (1, 0, 102), (2, 10, 103), (1, 12, 50)])
    ids.put_rows(rows, np.array([100, 101, 102, 103, 104]))
    assert found(ids, 1, [10, 11, 0, 12]) == [100, 101, None, None]
    assert found(ids, 2, [10]) == [103]
    put(ids, 1, 11, 500)
    if flushed:
        flush(ids, 1)
    for job in ids.forget_jobs([owned_ids(rows, hour=0)]):
        job()
    flush(ids, 2)
    assert found(ids, 1, [11]) == [500], "a newer message has the id"
    assert found(ids, 2, [10]) == ([None] if flushed else [103])
    ids.close()


def test_a_full_disk_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMDB has an error of its own for it; the ids stay findable and are stored later."""
    ids = IdIndex(str(tmp_path))
    put(ids, 1, 7, 70)
    ids.begin_flush()
    real = ids._env

    class Full:
        def begin(self, *, write: bool = False) -> lmdb.Transaction:
            if write:
                raise lmdb.DiskError("mdb_txn_commit: No space left on device")
            return real.begin()

    monkeypatch.setattr(ids, "_env", Full())
    with pytest.raises(DiskFullError):
        ids.write_flush(100)
    assert found(ids, 1, [7]) == [70]
    monkeypatch.setattr(ids, "_env", real)
    flush(ids, 100)
    assert found(ids, 1, [7]) == [70]
    assert ids.position == 100
    ids.close()


class Failing:
    """An environment whose next write transactions fail as LMDB fails, then work."""

    def __init__(self, real: lmdb.Environment, code: int, times: int) -> None:
        self._real = real
        self._code = code
        self.left = times

    def begin(self, *, write: bool = False) -> lmdb.Transaction:
        if write and self.left:
            self.left -= 1
            error = lmdb.Error("mdb_txn_commit: it failed")
            error.code = self._code
            raise error
        return self._real.begin(write=write)


def index_with_reserve(tmp_path: Path) -> tuple[IdIndex, SpaceReserve, SmallDisk]:
    disk = SmallDisk(str(tmp_path), 64 << 20)
    reserve = SpaceReserve(disk, f"{tmp_path}/reserve", 4 << 20)
    reserve.stand(64 << 20)
    ids = IdIndex(str(tmp_path / "ids"), reserve=reserve)
    put(ids, 1, 7, 70)
    ids.begin_flush()
    return ids, reserve, disk


def test_a_short_write_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMDB calls it an I/O error; the reserve makes room, and nothing is lost."""
    ids, reserve, _ = index_with_reserve(tmp_path)
    real = ids._env
    monkeypatch.setattr(ids, "_has_room", lambda: False)
    monkeypatch.setattr(ids, "_env", Failing(real, errno.EIO, 3))
    ids.write_flush(100)
    assert reserve.given == 3
    ids.end_flush()
    assert found(ids, 1, [7]) == [70]
    monkeypatch.setattr(ids, "_env", Failing(real, errno.EIO, 1_000))
    with pytest.raises(DiskFullError):
        ids.write_flush(200)
    assert reserve.size_bytes == 0
    monkeypatch.setattr(ids, "_env", real)
    ids.close()


def test_room_that_somebody_else_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step given up meanwhile tells that the disk was full, although it is not any more."""
    ids, reserve, _ = index_with_reserve(tmp_path)
    real = ids._env
    failing = Failing(real, errno.EIO, 1)

    def begin(*, write: bool = False) -> lmdb.Transaction:
        if failing.left:
            reserve.give()
        return Failing.begin(failing, write=write)

    monkeypatch.setattr(failing, "begin", begin, raising=False)
    monkeypatch.setattr(ids, "_env", failing)
    ids.write_flush(100)
    monkeypatch.setattr(ids, "_env", real)
    assert ids.position == 100
    ids.close()


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_a_failing_disk_is_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """With room on the disk an I/O error is one, and is not tried again."""
    ids, reserve, _ = index_with_reserve(tmp_path)
    real = ids._env
    failing = Failing(real, code, 1)
    monkeypatch.setattr(ids, "_env", failing)
    with pytest.raises(DiskFailedError, match="id index"):
        ids.write_flush(100)
    assert reserve.given == 0
    assert not (tmp_path / "ids" / "probe").exists()
    monkeypatch.setattr(ids, "_env", real)
    ids.close()


def test_the_lock_file_owns_its_blocks(tmp_path: Path) -> None:
    """It is written through a map: on a full disk a hole in it would end the process."""
    ids = IdIndex(str(tmp_path / "ids"))
    stat = (tmp_path / "ids" / "lock.mdb").stat()
    assert stat.st_size == 8192, "LMDB's own size"
    assert stat.st_blocks * 512 >= stat.st_size
    put(ids, 1, 7, 70)
    flush(ids, 1)
    ids.close()
    ids = IdIndex(str(tmp_path / "ids"))
    assert found(ids, 1, [7]) == [70]
    ids.close()


def test_a_full_map_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The map is as large as the disk; where the disk grew since, a restart maps it whole."""
    with monkeypatch.context() as patch:
        patch.setattr(id_index, "map_size", lambda _: 1 << 18)
        ids = IdIndex(str(tmp_path / "ids"))
        hashes = np.random.default_rng(1).integers(1, 2**63, 20_000).tolist()
        for ref, value in enumerate(hashes, 1):
            put(ids, 1, value, ref)
        with pytest.raises(DiskFullError, match="start again"):
            flush(ids, 7)
        ids.close()
    again = IdIndex(str(tmp_path / "ids"))
    assert again.set_aside == ""
    again.close()

"""The id index: what was put is found, through flushes, merges, reopening and rebuilding.

Method: a dict as the model under Hypothesis; the files are real ones in a temporary folder.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.storage.errors import DiskFailedError, DiskFullError
from delaylog.storage.files.file_system import File
from delaylog.storage.files.os_file_system import UnsyncedFileSystem
from delaylog.storage.layout import INDEX_ENTRY, Int64Array, RowArray
from delaylog.storage.runs import id_index, run_store
from delaylog.storage.runs.id_hash import Hashes
from delaylog.storage.runs.id_index import (
    BYTES_AN_ID,
    COUNT_MIN,
    FILTER_FILLED_MAX,
    IdFilter,
    IdIndex,
    owned_ids,
)
from delaylog.storage.runs.recent_ids import keys_of
from delaylog.storage.runs.run_store import KeyArray, KeyRun
from tests.effort import tries
from tests.storage.fake_disk import DiskCrashed, FakeDisk, Survival
from tests.storage.small_disk import SmallDisk

TOPICS = st.integers(1, 2)
HASHES = st.integers(1, 6) | st.just(2**64 - 1)
KINDS = ["put", "put", "put", "begin", "write", "write", "merge", "forget", "reopen", "clear"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), TOPICS, HASHES), max_size=40)
FS = UnsyncedFileSystem()


def put(ids: IdIndex, topic: int, hashed: int, ref: int) -> None:
    """Remember one message as the newest of its id."""
    ids.put_rows(rows_of([(topic, hashed, ref)]), np.array([ref]))


def found(ids: IdIndex, topic: int, hashes: list[int]) -> list[int | None]:
    """A ref or None per hash."""
    return [ref or None for ref in ids.get_column(topic, np.array(hashes, np.uint64)).tolist()]


def run_counts(folder: Path) -> list[int]:
    """How many ids each run has, by the file `index`."""
    return [count for _, count in run_store.read_stored(FS, str(folder)).runs]


@pytest.fixture
def filters(monkeypatch: pytest.MonkeyPatch) -> list[IdFilter]:
    """Every filter that an index makes, the one in use last."""
    made: list[IdFilter] = []

    def make(count: int) -> IdFilter:
        made.append(IdFilter(count))
        return made[-1]

    monkeypatch.setattr(id_index, "IdFilter", make)
    return made


def flush(ids: IdIndex, position: int) -> None:
    ids.begin_flush()
    for job in ids.flush_jobs(position):
        job()
    ids.end_flush()


def merge(ids: IdIndex) -> None:
    """Merge; an error of a job is thrown into the work, as whoever drives it does."""
    jobs = ids.merge_jobs()
    for job in jobs:
        try:
            job()
        except DiskFullError as error:
            jobs.throw(error)


def forget(ids: IdIndex, rows: RowArray) -> None:
    for job in ids.forget_jobs([owned_ids(rows, hour=0)]):
        job()


@given(STEPS)
@settings(max_examples=tries(60), deadline=None)
def test_against_a_dict(steps: list[tuple[str, int, int]]) -> None:
    """Puts and flushes in any order; a look-up sees the newest put, on disk or not."""
    with tempfile.TemporaryDirectory() as folder:
        ids = IdIndex(FS, folder)
        model: dict[tuple[int, int], int] = {}
        for ref, (step, topic, value) in enumerate(steps, 1):
            if step == "put":
                put(ids, topic, value, ref)
                model[topic, value] = ref
            elif step == "begin":
                ids.begin_flush()
            elif step == "write":
                flush(ids, ref)
                assert ids.position == ref
                assert ids.recent_count == 0
            elif step == "merge":
                merge(ids)
                assert not ids.crowded
            elif step == "forget":
                flush(ids, ref)
                if (topic, value) in model:
                    owner = model[topic, value]
                    # A message that the id is not any more, and the one that has it.
                    forget(ids, rows_of([(topic, value, owner - 1), (topic, value, owner)]))
                    del model[topic, value]
            elif step == "clear":
                ids.clear()
                model.clear()
            else:
                flush(ids, ref)
                ids.close()
                ids = IdIndex(FS, folder)
            wanted = [1, 2, 3, 4, 5, 6, 2**64 - 1]
            for number in (1, 2):
                expected = [model.get((number, hashed)) for hashed in wanted]
                assert found(ids, number, wanted) == expected
        ids.close()


def test_position_and_reopening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position is durable with the ids; giving pages back loses nothing."""
    monkeypatch.setattr(id_index, "REST_TOUCHES", 2)
    for module in (id_index, run_store):
        monkeypatch.setattr(module, "SLICE_ENTRIES", 3)
    ids = IdIndex(FS, str(tmp_path))
    assert ids.position == 0
    for number in range(1, 10):
        put(ids, 1, number, number * 7)
        flush(ids, number * 100)
    assert found(ids, 1, list(range(1, 11))) == [*(n * 7 for n in range(1, 10)), None]
    put(ids, 1, 3, 5)
    ids.close()
    ids = IdIndex(FS, str(tmp_path))
    assert ids.position == 900
    assert found(ids, 1, [3]) == [21], "what was not flushed is the log's to bring back"
    ids.close()


def test_an_id_is_found_while_it_is_being_stored(tmp_path: Path) -> None:
    """By a look-up of one or of many; a newer holder of the id that came meanwhile comes first."""
    ids = IdIndex(FS, str(tmp_path / "ids"))
    put(ids, 1, 5, 100)
    put(ids, 1, 6, 101)
    ids.begin_flush()
    put(ids, 1, 6, 102)
    assert found(ids, 1, [5, 6, 7]) == [100, 102, None]
    assert ids.get_few(1, [5, 6, 7]) == [100, 102, 0]


def test_clear_resets_the_position(tmp_path: Path) -> None:
    """A rebuild that is cut half way is not taken for a whole index."""
    ids = IdIndex(FS, str(tmp_path))
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
    ids = IdIndex(FS, str(tmp_path))
    rows = rows_of([(1, 10, 100), (1, 11, 101), (1, 0, 102), (2, 10, 103), (1, 12, 50)])
    ids.put_rows(rows, np.array([100, 101, 102, 103, 104]))
    assert found(ids, 1, [10, 11, 0, 12]) == [100, 101, None, None]
    assert found(ids, 2, [10]) == [103]
    put(ids, 1, 11, 500)
    if flushed:
        flush(ids, 1)
    forget(ids, rows)
    flush(ids, 2)
    assert found(ids, 1, [11]) == [500], "a newer message has the id"
    assert found(ids, 2, [10]) == ([None] if flushed else [103])
    ids.close()


def fresh_hashes(count: int, seed: int) -> Hashes:
    return np.random.default_rng(seed).integers(1, 1 << 64, count, np.uint64)


def put_many(ids: IdIndex, hashes: Hashes, first_ref: int) -> None:
    ids.put(1, hashes, np.arange(first_ref, first_ref + len(hashes)))


def test_runs_are_merged_to_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many flushes: few runs are left, every id leads to its newest ref, and no file is left over;
    what is forgotten takes no place once all runs are merged.
    """
    monkeypatch.setattr(run_store, "SIZE_MIN", 256)
    monkeypatch.setattr(run_store, "SLICE_ENTRIES", 300)
    ids = IdIndex(FS, str(tmp_path))
    everything = fresh_hashes(200 * 130, 1)
    model = np.zeros(len(everything), np.int64)
    for number in range(130):
        again = np.random.default_rng(number).integers(0, number * 200 + 1, 20)
        places = np.unique([*range(number * 200, number * 200 + 200), *again.tolist()])
        model[places] = np.arange(len(places)) + number * 1_000 + 1
        ids.put(1, everything[places], model[places])
        flush(ids, number)
        merge(ids)
    assert len(run_counts(tmp_path)) <= 12
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["index", *(f"{number}.ids" for number, _ in run_store.read_stored(FS, str(tmp_path)).runs)]
    )
    assert (ids.get_column(1, everything) == model).all()
    assert not ids.get_column(2, everything).any()
    gone = model % 2 == 0
    rows = np.zeros(int(gone.sum()), INDEX_ENTRY)
    rows["topic"], rows["id_hash"], rows["origin"] = 1, everything[gone], model[gone]
    forget(ids, rows)
    model[gone] = 0
    assert (ids.get_column(1, everything) == model).all()
    monkeypatch.setattr(run_store, "SIZE_MIN", 1 << 20)
    for number in range(4):
        put(ids, 3, number + 1, 1)
        flush(ids, number)
    merge(ids)
    assert run_counts(tmp_path) == [int((~gone).sum()) + 4]
    ids.close()
    ids = IdIndex(FS, str(tmp_path))
    assert (ids.set_aside, ids.position) == ("", 3)
    assert (ids.get_column(1, everything) == model).all()
    ids.close()


def test_small_runs_do_not_hide_large_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is forgotten after each flush is a small run, behind which the large ones are merged."""
    monkeypatch.setattr(run_store, "SIZE_MIN", 16)
    ids = IdIndex(FS, str(tmp_path))
    for number in range(100):
        hashes = fresh_hashes(1_000, number)
        put_many(ids, hashes, 1)
        flush(ids, number)
        forget(ids, rows_of([(1, hashes[k], k + 1) for k in range(5)]))
        merge(ids)
        assert len(run_counts(tmp_path)) < 20, number
    ids.close()


def test_what_was_forgotten_takes_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filters: list[IdFilter]
) -> None:
    """However often ids come and go; and nothing is left when all of them have gone."""
    monkeypatch.setattr(id_index, "COUNT_MIN", 1)
    monkeypatch.setattr(run_store, "SIZE_MIN", 1)
    ids = IdIndex(FS, str(tmp_path))
    living: list[Hashes] = []
    rows = 500
    for number in range(120):
        living.append(fresh_hashes(rows, number))
        put_many(ids, living[-1], 1)
        flush(ids, number)
        if len(living) > 10 or number > 110:
            gone = living.pop(0)
            forget(ids, rows_of([(1, gone[k], k + 1) for k in range(rows)]))
        merge(ids)
        count = len(living) * rows
        assert sum(run_counts(tmp_path)) <= 3 * count
        assert filters[-1].size_bytes <= 3 * BYTES_AN_ID * count
    for gone in living:
        forget(ids, rows_of([(1, gone[k], k + 1) for k in range(rows)]))
        merge(ids)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
    assert filters[-1].size_bytes < 100
    ids.close()


def test_memory_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filters: list[IdFilter]
) -> None:
    """Stored ids take two bytes each; new ids cost no look-up in the runs, few exceptions apart."""
    ids = IdIndex(FS, str(tmp_path))
    for number in range(8):
        put_many(ids, fresh_hashes(50_000, number), 1)
        flush(ids, number)
        assert filters[-1].size_bytes <= BYTES_AN_ID * max(50_000 * (number + 1), COUNT_MIN)
        assert filters[-1].count <= filters[-1].capacity * FILTER_FILLED_MAX
    looked = Counter[KeyRun]()
    find = KeyRun.find

    def counted(run: KeyRun, keys: KeyArray) -> tuple[Int64Array, Int64Array]:
        looked[run] += len(keys)
        return find(run, keys)

    monkeypatch.setattr(KeyRun, "find", counted)
    assert not ids.get_column(1, fresh_hashes(100_000, 99)).any()
    assert max(looked.values()) < 2_000
    assert ids.get_column(1, fresh_hashes(50_000, 3)).all()
    ids.close()


def test_colliding_keys_are_one_id(tmp_path: Path) -> None:
    """Of two ids with one hash the newest counts, here too; rows tell them apart. Hash 0 is none,
    and a topic's id whose key would be 0 is stored like any other.
    """
    ids = IdIndex(FS, str(tmp_path))
    zero = 0x9E37_79B9_7F4A_7C15
    assert keys_of(1, np.array([zero], np.uint64)).tolist() == [1]
    ids.put(1, np.array([zero, 0, 5, 5], np.uint64), np.array([10, 20, 30, 40]))
    assert found(ids, 1, [zero, 5]) == [10, 40]
    flush(ids, 1)
    assert found(ids, 1, [zero, 5]) == [10, 40]
    assert run_counts(tmp_path) == [2]
    ids.close()


@pytest.mark.parametrize("name", ["index", "1.ids", "2.ids"])
@pytest.mark.parametrize("how", ["missing", "cut", "flipped"])
def test_what_is_damaged_is_removed(tmp_path: Path, name: str, how: str) -> None:
    """A start finds it, whatever it is, and begins an empty index, to be made anew."""
    ids = IdIndex(FS, str(tmp_path))
    for number in (1, 2):
        put_many(ids, fresh_hashes(1_000, number), 1)
        flush(ids, number)
    ids.close()
    path = tmp_path / name
    raw = bytearray(path.read_bytes())
    for at in (0, 5, 20, 40, 63, 64, len(raw) // 2, len(raw) - 1):
        whole = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
        if how == "missing":
            path.unlink()
        elif how == "cut":
            path.write_bytes(raw[: min(at, len(raw) - 1)])
        else:
            flipped = raw.copy()
            flipped[min(at, len(raw) - 1)] ^= 4
            path.write_bytes(flipped)
        ids = IdIndex(FS, str(tmp_path))
        assert ids.position == 0
        assert not ids.get_column(1, fresh_hashes(1_000, 1)).any()
        assert (str(path) in ids.set_aside) == (how != "missing" or name != "index")
        ids.close()
        for each, content in whole.items():
            (tmp_path / each).write_bytes(content)


def test_damage_on_a_disk_whose_maps_are_exact() -> None:
    """What was mapped is closed, also when the last byte of the last run is the wrong one."""
    disk = FakeDisk()
    disk.mkdir("ids")
    ids = IdIndex(disk, "ids")
    for number in (1, 2):
        put_many(ids, fresh_hashes(100, number), 1)
        flush(ids, number)
    ids.close()
    disk.flip("ids/2.ids", 8 * 64 + 8 * 1_600 - 1)
    ids = IdIndex(disk, "ids")
    assert "ids/2.ids" in ids.set_aside
    assert ids.position == 0
    ids.close()


def test_a_damaged_index_behind_a_link(tmp_path: Path) -> None:
    """Only the files that an index has are removed from where it leads."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "lost+found").mkdir(parents=True)
    (elsewhere / "index").write_bytes(b"damaged")
    (tmp_path / "ids").symlink_to(elsewhere)
    ids = IdIndex(FS, str(tmp_path / "ids"))
    ids.close()
    assert [path.name for path in elsewhere.iterdir()] == ["lost+found"]


class BadSector(UnsyncedFileSystem):
    """Of which one file cannot be read behind its head."""

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        real = file.pread

        def pread(size: int, offset: int) -> bytes:
            if path.endswith("1.ids") and offset:
                raise DiskFailedError(f"cannot read {path}")
            return real(size, offset)

        file.pread = pread  # type: ignore[method-assign]
        return file


def test_a_bad_sector_is_damage(tmp_path: Path) -> None:
    ids = IdIndex(FS, str(tmp_path))
    put_many(ids, fresh_hashes(1_000, 1), 1)
    flush(ids, 1)
    ids.close()
    ids = IdIndex(BadSector(), str(tmp_path))
    assert "cannot read" in ids.set_aside
    assert (ids.position, list(tmp_path.iterdir())) == (0, [])
    ids.close()


def test_known_bytes(tmp_path: Path) -> None:
    """Part of the format of a data folder."""
    ids = IdIndex(FS, str(tmp_path))
    ids.put(3, np.array([9, 8], np.uint64), np.array([70, 71]))
    flush(ids, 5)
    ids.close()
    assert (tmp_path / "1.ids").read_bytes().hex() == KNOWN_RUN
    assert (tmp_path / "index").read_bytes().hex() == KNOWN_INDEX


def flushed(disk: FakeDisk) -> int:
    """How many of four flushes, with a merge, were done when the disk crashed."""
    done = 0
    ids = IdIndex(disk, "ids")
    try:
        for number in range(1, 6):
            put_many(ids, fresh_hashes(5, number), number)
            ids.begin_flush()
            ids.write_flush(number)
            ids.end_flush()
            done = number
    except DiskCrashed:
        return done
    ids.close()
    return done


@pytest.mark.parametrize("survival", ["nothing", "everything", "prefix", "sectors"])
def test_a_crash_at_any_operation(survival: Survival) -> None:
    """What the index says is whole is there, with all ids; it is never found damaged."""
    whole = FakeDisk()
    whole.mkdir("ids")
    whole.sync_folder(".")
    assert flushed(whole) == 5
    for at in range(3, whole.count + 1):
        disk = FakeDisk(at)
        disk.mkdir("ids")
        disk.sync_folder(".")
        disk.crash_at = at
        done = flushed(disk)
        ids = IdIndex(disk.restart(survival, at), "ids")
        assert ids.set_aside == ""
        assert ids.position >= done
        for number in range(1, ids.position + 1):
            found = ids.get_column(1, fresh_hashes(5, number)).tolist()
            assert found == list(range(number, number + 5)), (at, number)
        ids.close()


def test_a_full_disk_is_told_as_one(tmp_path: Path) -> None:
    """The ids stay findable and are stored later, with those that came meanwhile."""
    disk = SmallDisk(str(tmp_path), 1 << 20)
    ids = IdIndex(disk, str(tmp_path / "ids"))
    first, second = fresh_hashes(1_000, 1), fresh_hashes(1_000, 2)
    put_many(ids, first, 1)
    disk.take_all()
    ids.begin_flush()
    with pytest.raises(DiskFullError):
        ids.write_flush(100)
    put_many(ids, second, 5_000)
    assert ids.get_column(1, first).tolist() == list(range(1, 1_001))
    assert ids.position == 0
    disk.others = 0
    flush(ids, 200)
    ids.close()
    ids = IdIndex(disk, str(tmp_path / "ids"))
    assert ids.position == 200
    assert ids.get_column(1, first).tolist() == list(range(1, 1_001))
    assert ids.get_column(1, second).tolist() == list(range(5_000, 6_000))
    ids.close()


def test_a_merge_on_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_store, "SIZE_MIN", 1)
    disk = SmallDisk(str(tmp_path), 1 << 20)
    ids = IdIndex(disk, str(tmp_path / "ids"))
    hashes = [fresh_hashes(1_000, number) for number in range(2)]
    for number, each in enumerate(hashes):
        put_many(ids, each, 1)
        flush(ids, number)
    before = sorted(path.name for path in (tmp_path / "ids").iterdir())
    disk.others = disk.free_bytes("") - 20_000
    with pytest.raises(DiskFullError):
        merge(ids)
    assert sorted(path.name for path in (tmp_path / "ids").iterdir()) == before
    disk.others = 0
    merge(ids)
    assert run_counts(tmp_path / "ids") == [2_000]
    for each in hashes:
        assert ids.get_column(1, each).all()
    ids.close()


KNOWN_RUN = (
    "444c49520100000002000000000000000200000000000000a31a3bf2c63741dd7f1d10bd00000000"
    "0000000000000000000000000000000000000000000000003674df7d2c6da6da3774df7d2c6da6da"
    "46000000000000004700000000000000"
)
KNOWN_INDEX = "444c49580100000005000000000000000000000000000000040000005c58b92091920102"

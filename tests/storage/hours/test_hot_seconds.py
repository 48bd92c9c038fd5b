"""Hot seconds: whatever a copy gives out is what the hour holds, and nothing of it stays behind.

Method: Hypothesis draws a second of several topics, lays it out in small slices and hands out what
a ready queue could ask for (in order, with gaps, with rows that are not in the copy, once more);
rows and records are compared with the hour's own, byte for byte but for the place.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.storage.errors import DiskFullError, NoDescriptorError
from delaylog.storage.hours import hot_seconds
from delaylog.storage.hours.hot_seconds import HotSeconds
from delaylog.storage.hours.hour_reader import HourReader
from delaylog.storage.hours.hour_store import HourStore
from delaylog.storage.layout import HOUR_MS, Int64Array
from tests.effort import tries
from tests.storage.fake_disk import FakeDisk, FakeFile
from tests.storage.hours.hour_model import FIRST, Model, noted_reads, open_store, run

SECOND = FIRST * HOUR_MS // 1000 + 5
LATER = (SECOND + 1) * 1000
SCRATCH = "data/ready"


def filled(bodies: list[bytes]) -> tuple[FakeDisk, HourStore, Int64Array]:
    """A store whose hour holds messages due in SECOND, flushed; refs in log order."""
    disk = FakeDisk()
    store = open_store(disk)
    disk.mkdir(SCRATCH)
    model = Model()
    for at in range(0, len(bodies), 7):
        part = bodies[at : at + 7]
        model.add(store, [SECOND * 1000] * len(part), part, FIRST)
    run(store.flusher.flush(upto=model.position))
    return disk, store, np.array(model.refs, np.int64)


def lay_out(
    hot: HotSeconds,
    store: HourStore,
    refs: Int64Array,
    topics: Int64Array,
    *,
    slices: int = 1 << 30,
    free_bytes: int = 1 << 40,
    second: int = SECOND,
) -> None:
    left = iter(range(slices - 1, -1, -1))
    run(
        hot.lay_out(
            second,
            refs,
            topics,
            store.folders.hour(FIRST),
            free_bytes=free_bytes,
            in_time=lambda: next(left) > 0,
        )
    )


def check(hot: HotSeconds, store: HourStore, topic: int, wanted: Int64Array) -> int:
    """What the copies say of `wanted` is true; returns how many they know."""
    hot.drop_read()
    found = hot.rows(topic, wanted, LATER)
    if found is None:
        return 0
    mask, rows = found
    refs = wanted if mask is None else wanted[mask]
    assert hot.copied(rows).all()
    true_rows = store.rows(refs)
    assert not hot.copied(true_rows).any()
    assert hot.records(rows) == store.records(refs, true_rows)
    plain = rows.copy()
    plain["offset"] = true_rows["offset"]
    assert plain.tobytes() == true_rows.tobytes()
    return len(refs)


@given(st.data())
@settings(max_examples=tries(150), deadline=None)
def test_what_copies_give_out_is_what_the_hour_holds(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 60))
    sizes = data.draw(st.lists(st.integers(0, 30), min_size=n, max_size=n))
    disk, store, refs = filled([bytes([k % 251]) * size for k, size in enumerate(sizes)])
    order = np.array(data.draw(st.permutations(range(n))))
    refs, topics = (
        refs[order],
        np.array(data.draw(st.lists(st.sampled_from([1, 2, 3]), min_size=n, max_size=n))),
    )
    hot = HotSeconds(disk, SCRATCH, rows_min=2, bytes_max=1 << 30)
    cut = data.draw(st.integers(0, n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot_seconds, "_SLICE_ROWS", data.draw(st.integers(1, 20)))
        slices = data.draw(st.integers(1, 10) | st.just(1 << 30))
        lay_out(hot, store, refs[:cut], topics[:cut], slices=slices)
        lay_out(hot, store, refs[cut:], topics[cut:], slices=slices, second=SECOND + 1)
    for topic in (1, 2, 3):
        mine = refs[topics == topic]
        kept = mine[
            np.array(
                data.draw(st.lists(st.booleans(), min_size=len(mine), max_size=len(mine))), bool
            )
        ]
        while len(kept):
            count = data.draw(st.integers(1, len(kept)))
            check(hot, store, topic, kept[:count])
            if data.draw(st.booleans()):
                back = data.draw(st.integers(0, count - 1))
                check(hot, store, topic, kept[back:count])
            kept = kept[count:]
    hot.clear()
    assert disk.listdir(SCRATCH) == []


def test_everything_is_found_in_order_with_gaps_and_with_strangers() -> None:
    disk, store, refs = filled([b"%d" % k for k in range(100)])
    order = np.random.default_rng(1).permutation(90)
    hot = HotSeconds(disk, SCRATCH, rows_min=2, bytes_max=1 << 30)
    lay_out(hot, store, refs[order], np.ones(90, np.int64))
    inside = refs[order]
    assert check(hot, store, 1, inside[:10]) == 10
    assert check(hot, store, 1, np.delete(inside[10:30], [0, 7, 12])) == 17
    came_live = np.insert(inside[30:40], 4, refs[95])
    assert check(hot, store, 1, came_live) == 10
    assert check(hot, store, 1, inside[35:45]) == 10, "given back and taken again"
    assert check(hot, store, 2, inside[45:50]) == 0, "another topic's"
    assert hot.rows(1, inside[45:50], SECOND * 1000 - 1) is None, "not due yet"
    assert check(hot, store, 1, inside[45:90]) == 45
    assert len(hot) == 1
    assert hot.rows(1, refs[95:], LATER) is None
    hot.drop_read()
    assert len(hot) == 0, "read to its end"
    assert disk.listdir(SCRATCH) == []


def test_a_copy_that_was_passed_by_goes() -> None:
    """The last of a second were cancelled: the next second's hand-out says that it is over."""
    disk, store, refs = filled([b"x"] * 40)
    hot = HotSeconds(disk, SCRATCH, rows_min=2, bytes_max=1 << 30)
    lay_out(hot, store, refs[:20], np.ones(20, np.int64))
    lay_out(hot, store, refs[20:], np.ones(20, np.int64), second=SECOND + 1)
    assert check(hot, store, 1, refs[:15]) == 15
    assert check(hot, store, 1, refs[20:30]) == 10
    assert len(hot) == 2
    assert check(hot, store, 1, refs[30:35]) == 5
    assert len(hot) == 1


def test_room_and_small_topics() -> None:
    disk, store, refs = filled([b"x" * 50] * 64)
    topics = np.array([1] * 63 + [2])
    hot = HotSeconds(disk, SCRATCH, rows_min=32, bytes_max=1 << 30)
    lay_out(hot, store, refs[:31], topics[:31])
    assert len(hot) == 0, "too few"
    lay_out(hot, store, refs, topics, free_bytes=63 * 112 - 1)
    assert len(hot) == 0, "no room"
    lay_out(hot, store, refs, topics)
    bodies = int(store.rows(refs[:63])["size"].sum())
    assert hot.size_bytes == 63 * 112 + bodies, "the topic of one message is left out"
    hot.drop_hour(FIRST + 1)
    assert len(hot) == 1
    hot.drop_hour(FIRST)
    assert disk.listdir(SCRATCH) == []


def test_large_messages_take_no_more_disk_and_memory_than_they_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slice of 4,096 messages of 4 MiB would be 16 GiB."""
    monkeypatch.setattr(hot_seconds, "_SLICE_ROWS", 16)
    disk, store, refs = filled([bytes([k]) * 200_000 for k in range(60)])
    hot = HotSeconds(disk, SCRATCH, rows_min=10, bytes_max=10 << 20)
    read = noted_reads(monkeypatch, HourReader, "records", lambda rows: rows["size"].sum())
    lay_out(hot, store, refs, np.ones(60, np.int64))
    assert max(read) <= 1 << 20
    assert sum(read) <= hot.size_bytes <= 10 << 20
    monkeypatch.undo()
    assert check(hot, store, 1, refs[:48]) == 48, "what fitted is there"
    assert check(hot, store, 1, refs[48:]) == 0


def test_a_copy_dropped_while_it_is_made() -> None:
    disk, store, refs = filled([b"x"] * 64)
    hot = HotSeconds(disk, SCRATCH, rows_min=2, bytes_max=1 << 30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot_seconds, "_SLICE_ROWS", 8)
        work = hot.lay_out(
            SECOND,
            refs,
            np.ones(64, np.int64),
            store.folders.hour(FIRST),
            free_bytes=1 << 40,
            in_time=lambda: True,
        )
        job = next(work)
        assert job is not None
        job()
        hot.close()
        assert len(disk.listdir(SCRATCH)) == 1, "the worker still writes it"
        assert list(work) == [], "no more slices"
        assert disk.listdir(SCRATCH) == []
        lay_out(hot, store, refs, np.ones(64, np.int64))
    assert disk.listdir(SCRATCH) == [], "and no more copies"


def test_a_full_disk_is_told() -> None:
    disk, store, refs = filled([b"x"] * 64)
    hot = HotSeconds(disk, SCRATCH, rows_min=2, bytes_max=1 << 30)
    disk.full_at = range(disk.count + 3, 1 << 30)
    with pytest.raises(DiskFullError):
        lay_out(hot, store, refs, np.ones(64, np.int64))
    hot.clear()
    assert disk.listdir(SCRATCH) == []


@pytest.mark.parametrize("source", ["delay.index", "delay.log"])
def test_a_copy_whose_sources_cannot_be_opened(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a free descriptor: the scratch file goes, and no file stays open."""
    disk, store, refs = filled([b"x"] * 64)
    hot = HotSeconds(disk, SCRATCH, rows_min=2, bytes_max=1 << 30)
    left: list[FakeFile] = []

    def open_file(path: str, *, create: bool = False) -> FakeFile:
        if path.endswith(source):
            raise NoDescriptorError("no descriptor is free")
        left.append(FakeDisk.open(disk, path, create=create))
        return left[-1]

    monkeypatch.setattr(disk, "open", open_file)
    with pytest.raises(NoDescriptorError):
        lay_out(hot, store, refs, np.ones(64, np.int64))
    hot.clear()
    assert disk.listdir(SCRATCH) == []
    for file in left:
        with pytest.raises(AssertionError, match="used after close"):
            file.size()


@pytest.mark.parametrize("part", ["row", "record"])
def test_rows_that_rotted_in_a_copy_are_read_from_the_hour(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot_seconds, "_SUM_ROWS", 8)
    disk, store, refs = filled([b"body %d" % k for k in range(60)])
    hot = HotSeconds(disk, SCRATCH, rows_min=10, bytes_max=1 << 30)
    lay_out(hot, store, refs, np.ones(60, np.int64))
    (name,) = disk.listdir(SCRATCH)
    at = 20 * 112 + 24 if part == "row" else 60 * 112 + 20 * 6 + 15
    disk.flip(f"{SCRATCH}/{name}", at * 8)
    assert check(hot, store, 1, refs[:16]) == 16
    assert check(hot, store, 1, refs[16:24]) == 0, "a part that is not what was copied"
    assert check(hot, store, 1, refs[24:60]) == 36


def test_the_first_receive_of_a_topic_reads_only_its_own_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy may have a GiB of other topics before it, and this runs on the loop."""
    monkeypatch.setattr(hot_seconds, "_SUM_ROWS", 8)
    disk, store, refs = filled([b"x" * 1_000] * 500)
    topics = np.array([1] * 480 + [2] * 20)
    hot = HotSeconds(disk, SCRATCH, rows_min=10, bytes_max=1 << 30)
    lay_out(hot, store, refs, topics)
    read = noted_reads(monkeypatch, FakeFile, "pread", lambda size, _: size)
    found = hot.rows(2, refs[480:488], LATER)
    assert found is not None
    assert sum(read) < 20 * 1_200

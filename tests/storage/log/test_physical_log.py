"""The physical log on a disk that crashes and fills up.

Purpose: what lies below a durable position is never lost or changed, and nothing is invented.
Method: round trips under Hypothesis; a small workload cut at every file operation, with every way
in which unsynced sectors can survive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.storage.errors import CorruptionError, DiskFailedError, DiskFullError
from delaylog.storage.layout import FRAME_HEADER_SIZE, FrameKind
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.log_reader import segment_name
from delaylog.storage.log.physical_log import PhysicalLog
from tests.effort import tries
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeDisk, FakeFile, Survival
from tests.storage.log.small_log import FOLDER, SMALL, append, filled, open_log, payload, write


@dataclass
class Run:
    """What a workload had got to when it was cut."""

    frames: list[tuple[int, bytes]] = field(default_factory=list)
    durable: int = 0


def work(disk: FakeDisk, run: Run) -> None:
    """Appends, writes and syncs in a pattern that leaves each kind of gap between them."""
    log, _ = open_log(disk)
    for number in range(24):
        data = payload(number)
        run.frames.append((append(log, data), data))
        if number % 3 == 1:
            log.write_pending()
        if number % 4 == 3:
            log.write_pending()
            run.durable = log.sync()
    log.close()


def operations() -> int:
    disk = FakeDisk()
    work(disk, Run())
    return disk.count


@given(
    st.lists(
        st.tuples(st.sampled_from(FrameKind), st.lists(st.binary(max_size=300), max_size=3)),
        max_size=30,
    ),
    st.data(),
)
@settings(max_examples=tries(60), deadline=None)
def test_round_trip(frames: list[tuple[FrameKind, list[bytes]]], data: st.DataObject) -> None:
    """What was appended comes back: kinds, parts joined, header fields, from any frame on."""
    disk = FakeDisk()
    log, found = open_log(disk)
    assert found == []
    positions = []
    for number, (kind, parts) in enumerate(frames):
        tick = Tick(number, number + 1, number + 2)
        at = log.append(kind, parts, epoch=number, leader_time_ms=-number, tick=tick)
        positions.append(at)
        if data.draw(st.booleans(), label="write"):
            log.write_pending()
        if data.draw(st.booleans(), label="sync"):
            log.sync()
    log.write_pending()
    end = log.sync()
    assert end == log.end_position == log.written_position == log.durable_position
    log.close()
    first = data.draw(st.integers(0, max(len(frames) - 1, 0)), label="first")
    start = positions[first] if positions else 0
    again, found = open_log(disk, start, end)
    assert [f.header.position for f in found] == positions[first:]
    assert [(f.header.kind, bytes(f.payload)) for f in found] == [
        (kind, b"".join(parts)) for kind, parts in frames[first:]
    ]
    for number, frame in enumerate(found, first):
        header = frame.header
        assert (header.epoch, header.leader_time_ms) == (number, -number)
        assert (header.tick_second, header.tick_local_index, header.tick_position) == (
            number,
            number + 1,
            number + 2,
        )
        assert header.synced_position <= header.position
    assert again.end_position == end


def check_survivors(disk: FakeDisk, run: Run) -> None:
    log, found = open_log(disk, 0, run.durable)
    got = [(f.header.position, bytes(f.payload)) for f in found]
    assert got == run.frames[: len(got)], "nothing is invented and nothing changed"
    assert log.durable_position == (found[-1].end if found else 0) >= run.durable
    # The log goes on: frames that are appended now follow the survivors after another crash.
    more = append(log, b"more")
    assert more == log.durable_position
    log.write_pending()
    end = log.sync()
    again, found = open_log(disk.restart("nothing"), 0, end)
    assert [bytes(f.payload) for f in found] == [data for _, data in got] + [b"more"]
    assert again.end_position == end


@pytest.mark.parametrize("survival", SURVIVALS)
def test_crash_at_every_operation(survival: Survival) -> None:
    """Cut the workload in each file operation; frames below the durable position are all there."""
    for at in range(1, operations() + 1):
        for seed in range(6 if survival in ("sectors", "prefix") else 1):
            disk = FakeDisk(seed)
            disk.crash_at = at
            run = Run()
            with pytest.raises(DiskCrashed):
                work(disk, run)
            check_survivors(disk.restart(survival, seed * 1_000 + at), run)


def test_crash_while_recovering() -> None:
    """A second crash inside recover() changes nothing about what is promised."""
    for at in range(20, operations() + 1, 3):
        for again in range(1, 6):
            disk = FakeDisk(at)
            disk.crash_at = at
            run = Run()
            with pytest.raises(DiskCrashed):
                work(disk, run)
            disk = disk.restart("sectors", at)
            disk.crash_at = again
            try:
                open_log(disk, 0, run.durable)
            except DiskCrashed:
                check_survivors(disk.restart("sectors", again), run)


def test_replayed_frames_are_durable() -> None:
    """A frame that replay hands out survives a power cut: derived files may follow it.

    After a kill without power cut the log's tail may be in the page cache only.
    """
    disk = FakeDisk()
    log, _ = open_log(disk)
    disk.sync_all()
    write(log, b"in the page cache")
    log.close()
    replay = PhysicalLog(disk, FOLDER).recover(0, 0)
    frame = next(replay)
    _, found = open_log(disk.restart("nothing"))
    assert [bytes(f.payload) for f in found] == [bytes(frame.payload)]


def test_full_disk_keeps_frames_in_order() -> None:
    """ENOSPC leaves the frames queued; a later try writes them, in order, over the torn part."""
    for fault in range(1, 12):
        disk = FakeDisk(fault)
        log, _ = open_log(disk)
        disk.full_at = range(disk.count + 1, disk.count + 1 + fault)
        for number in range(8):
            append(log, payload(number + 3))
            try:
                log.write_pending()
            except DiskFullError:
                assert log.pending_size > 0
        while log.pending_size:
            try:
                log.write_pending()
            except DiskFullError:
                continue
        end = log.sync()
        assert end == log.end_position
        _, found = open_log(disk.restart("nothing") if fault % 2 else disk, 0, end)
        assert [bytes(f.payload) for f in found] == [payload(n + 3) for n in range(8)]


def test_frames_appended_during_a_refused_write_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log thread writes while the loop appends: frames that stay queued keep their place."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    append(log, b"one")

    def full(*_: Any) -> None:
        append(log, b"two")
        raise DiskFullError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(FakeFile, "pwritev", full)
        with pytest.raises(DiskFullError):
            log.write_pending()
    log.write_pending()
    _, found = open_log(disk, 0, log.sync())
    assert [bytes(f.payload) for f in found] == [b"one", b"two"]


@pytest.mark.parametrize("step", ["pwritev", "fdatasync"])
def test_an_interrupted_commit_is_made_again(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Ctrl-C behind the system's call, with sealed segments: none is lost or forgotten."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    for number in range(5):
        write(log, bytes([number]) * 900)
    assert len(disk.listdir(FOLDER)) == 3, "two are sealed"
    append(log, b"queued")
    real = getattr(FakeFile, step)

    def interrupted(*how: Any) -> None:
        real(*how)
        raise KeyboardInterrupt

    def commit() -> int:
        log.write_pending()
        return log.sync()

    with monkeypatch.context() as patched:
        patched.setattr(FakeFile, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            commit()
    end = commit()
    assert end == log.end_position
    assert not log.sealed
    _, found = open_log(disk.restart("nothing"), 0, end)
    assert [bytes(f.payload)[:6] for f in found] == [*(bytes([n]) * 6 for n in range(5)), b"queued"]


def test_a_frame_written_during_a_sync_is_durable_by_the_next_one() -> None:
    """The loop goes on writing while the log thread waits for the disk."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    write(log, b"one")
    end_of_one = log.end_position

    def loop() -> None:
        disk.on_operation = lambda: None
        write(log, b"two")

    disk.on_operation = loop
    assert log.sync() == log.durable_position == end_of_one
    assert log.sync() == log.durable_position == log.end_position > end_of_one


def test_sync_while_the_disk_is_full() -> None:
    """A sync after a refused write does not call the frames that wait durable."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    write(log, b"one")
    disk.full_at = frozenset([disk.count + 1])
    append(log, b"two")
    with pytest.raises(DiskFullError):
        log.write_pending()
    durable = log.sync()
    assert durable == FRAME_HEADER_SIZE + 3 < log.end_position


def test_failed_sync_of_a_sealed_segment_is_not_forgotten() -> None:
    """The sealed segment behind a roll is synced before anything in the new one is durable."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    for number in range(6):
        write(log, payload(number + 5))
    sealed = len(disk.listdir(FOLDER)) - 1
    assert sealed >= 1
    disk.log.clear()
    end = log.sync()
    assert len(disk.log) == 1 + sealed + 1, "the names, the sealed segments, the new one"
    assert {entry.split()[0] for entry in disk.log} == {"sync"}
    _, found = open_log(disk.restart("nothing"), 0, end)
    assert len(found) == 6


def test_segments_roll_and_drop() -> None:
    """Segments are named by their base, hold whole frames, and are removed once they are unused."""
    disk, positions, end = filled()
    bases = [int(name[:-4]) for name in disk.listdir(FOLDER)]
    assert len(bases) >= 4
    assert set(bases) <= set(positions)
    log, _ = open_log(disk, bases[-1], end)
    assert log.drop_below(bases[2] - 1) == 1
    assert log.first_position == bases[1]
    assert log.drop_below(end + 1) == len(bases) - 2, "the last segment always stays"
    assert disk.listdir(FOLDER) == [segment_name(bases[-1])]
    log.close()
    _, found = open_log(disk, bases[-1], end)
    assert [f.header.position for f in found] == [p for p in positions if p >= bases[-1]]
    with pytest.raises(CorruptionError):
        open_log(disk, 0, end)


def test_large_frames_cross_the_read_window() -> None:
    """Payloads larger than the window that recovery reads by come back whole."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    sizes = [10, 5 << 20, 0, (4 << 20) - FRAME_HEADER_SIZE, 3]
    for size in sizes:
        append(log, b"z" * size)
    log.write_pending()
    end = log.sync()
    _, found = open_log(disk, 0, end)
    assert [len(f.payload) for f in found] == sizes


def test_hops_find_frames_beside_the_writer() -> None:
    """Frames of one kind, few at a time, over segments that roll meanwhile; only written ones."""
    log, _ = open_log(FakeDisk())
    kinds = [FrameKind.SEND, FrameKind.LEASE, FrameKind.SETTLE]
    wanted = []
    for number in range(40):
        kind = kinds[number % 3]
        position = append(log, payload(number), kind)
        if kind is FrameKind.LEASE and position >= 3_000:
            wanted.append((position, payload(number)))
        log.write_pending()
    log.sync()
    start = next(
        frame.header.position for frame in log.hops(0).run(99, lambda head: head.position >= 3_000)
    )
    hops = log.hops(start)
    append(log, b"not written", FrameKind.LEASE)
    found = []
    while hops.position < hops.end:
        found += hops.run(3, lambda head: head.kind == FrameKind.LEASE)
        assert hops.run(0, lambda head: True) == []
    assert [(frame.header.position, bytes(frame.payload)) for frame in found] == wanted
    assert not hops.skipped
    hops.close()


def test_hops_pass_over_segments_that_are_dropped() -> None:
    """Old segments are dropped while hops read the log."""
    log, _ = open_log(FakeDisk())
    positions = [write(log, payload(number)) for number in range(60)]
    log.sync()
    hops = log.hops(0)
    assert len(hops.run(4, lambda head: True)) == 3, "opening a segment is a step too"
    assert log.drop_below(positions[40]) > 1
    rest = []
    while hops.position < hops.end:
        rest += hops.run(10, lambda head: True)
    assert hops.skipped
    told = [frame.header.position for frame in rest]
    # What is left of the segment that was open, then those that are still there.
    kept = [position for position in positions if position >= log.first_position]
    assert told[-len(kept) :] == kept
    assert told == sorted(told)
    assert set(told) < set(positions)
    late = log.hops(0)
    assert late.position == log.first_position
    late.close()


def test_nothing_is_written_twice_at_once() -> None:
    """A writer that does not wait says so while another one writes."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    seen: list[bool] = []

    def other_writer() -> None:
        disk.on_operation = lambda: None
        seen.append(log.write_pending(wait=False))

    append(log, b"x")
    disk.on_operation = other_writer
    assert log.write_pending()
    assert seen == [False]
    assert log.pending_size == 0


def test_closed_log_refuses_sync() -> None:
    disk = FakeDisk()
    log, _ = open_log(disk)
    log.close()
    with pytest.raises(DiskFailedError):
        log.sync()


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_failure_is_final(call: str) -> None:
    """The disk would take the next call; the log does not ask, or it would promise lost bytes."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    append(log, b"lost")
    if call == "sync":
        log.write_pending()
    disk.fail_at = frozenset([disk.count + 1])
    with pytest.raises(DiskFailedError):
        log.write_pending() if call == "write" else log.sync()
    count = disk.count
    append(log, b"later")
    for again in (log.write_pending, log.sync, log.roll):
        with pytest.raises(DiskFailedError, match="has failed"):
            again()
    assert disk.count == count
    assert log.durable_position == 0


def test_roll() -> None:
    """A new segment begins at once; the old one is synced, closed by the next sync, droppable."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    log.roll()
    assert len(disk.listdir(FOLDER)) == 1, "an empty segment is as good as a new one"
    write(log, b"one")
    log.roll()
    log.roll()
    assert log.sealed
    end = log.end_position
    assert disk.listdir(FOLDER) == [segment_name(0), segment_name(end)]
    assert log.sync() == end
    assert not log.sealed
    write(log, b"two")
    assert log.sync() == log.end_position
    assert log.drop_below(end) == 1
    assert log.first_position == end
    _, found = open_log(disk.restart("nothing"), end, log.durable_position)
    assert [bytes(frame.payload) for frame in found] == [b"two"]


def test_a_crash_right_after_a_roll() -> None:
    """The last segment is empty: the next start appends to it."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    write(log, b"one")
    end = log.sync()
    log.roll()
    again, found = open_log(disk.restart("everything"), 0, end)
    assert [bytes(frame.payload) for frame in found] == [b"one"]
    append(again, b"two")
    again.write_pending()
    assert again.sync() == again.end_position


@pytest.mark.parametrize("seed", range(tries(6)))
@pytest.mark.parametrize("how", ["roll", "full segment"])
def test_a_partial_write_at_the_end_of_a_segment_is_no_damage(how: str, seed: int) -> None:
    """A part of the frames was written, and all of them go into the next segment: no rot."""
    disk = FakeDisk(seed)
    log, _ = open_log(disk)
    for data in (b"a" * 100, b"b" * 100):
        write(log, data)
    log.sync()
    append(log, b"c" * 600)
    append(log, b"d" * 600)
    disk.full_at = range(disk.count + 1, disk.count + 2)
    with pytest.raises(DiskFullError):
        log.write_pending()
    if how == "roll":
        log.roll()
    else:
        append(log, b"e" * 700)
    log.write_pending()
    log.sync()
    write(log, b"last")
    end = log.sync()
    assert len(disk.listdir(FOLDER)) >= 2
    again, found = open_log(disk.restart("nothing"), 0, end)
    assert again.end_position == end
    kinds = [bytes(frame.payload[:1]) for frame in found]
    assert kinds == [b"a", b"b", b"c", b"d", *([b"e"] if how == "full segment" else []), b"l"]


def test_one_frame_by_its_position() -> None:
    """It is read while it waits, once it is written, in any segment, and while it is recovered."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    payloads = [bytes([k]) * 600 for k in range(9)]
    places = []
    for data in payloads:
        places.append(append(log, data))
        assert log.frame_at(places[-1]).payload == data
    log.sync()
    assert [log.frame_at(place).payload for place in places] == payloads
    log.close()
    again = PhysicalLog(disk, FOLDER, segment_bytes_max=SMALL)
    for frame in again.recover(0, 0):
        assert again.frame_at(places[0]).payload == payloads[0]
        assert again.frame_at(frame.header.position).end == frame.end
    with pytest.raises(CorruptionError, match="a bad frame"):
        again.frame_at(places[1] + 1)
    assert again.drop_below(places[-1]) > 0
    with pytest.raises(CorruptionError, match="begins behind"):
        again.frame_at(places[0])


def test_a_write_that_begins_a_segment_waits_for_no_disk() -> None:
    """Writes are made by the event loop, so the segment's name is made durable by the next sync.

    An old segment is not removed before.
    """

    class Counting(FakeDisk):
        waits = 0

        def sync_folder(self, path: str) -> None:
            self.waits += 1
            super().sync_folder(path)

    disk = Counting()
    log, _ = open_log(disk)
    disk.waits = 0
    for number in range(24):
        write(log, payload(number))
    assert len(disk.listdir(FOLDER)) > 2
    assert disk.waits == 0
    log.sync()
    log.sync()
    assert disk.waits == 1
    begun = len(disk.listdir(FOLDER))
    while len(disk.listdir(FOLDER)) == begun:
        end = write(log, payload(3))
    log.drop_below(end)
    assert disk.waits == 2
    log.close()

"""Frames in memory are the ones in the file: a log that keeps some against one that keeps none."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.storage.layout import FrameKind
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.physical_log import PhysicalLog, RecentFrames
from tests.effort import tries
from tests.storage.fake_disk import FakeDisk

SIZES = st.integers(0, 300)
STEPS = st.lists(
    st.tuples(st.just("append"), SIZES)
    | st.tuples(st.just("raw"), st.integers(1, 4))
    | st.tuples(st.just("cut"), st.integers(0, 30))
    | st.tuples(st.just("sync"), st.just(0)),
    max_size=25,
)


def open_log(recent_bytes_max: int) -> PhysicalLog:
    log = PhysicalLog(FakeDisk(), "log", segment_bytes_max=900, recent_bytes_max=recent_bytes_max)
    assert list(log.recover(0, 0)) == []
    return log


def append(log: PhysicalLog, size: int) -> None:
    payload = [bytes([size % 251]) * size]
    log.append(FrameKind.SEND, payload, epoch=1, leader_time_ms=size, tick=Tick())


@given(STEPS, st.sampled_from([0, 150, 600, 1 << 20]), st.integers(1, 1_200))
@settings(max_examples=tries(150), deadline=None)
def test_it_reads_as_the_file_does(steps: list[tuple[str, int]], kept: int, bytes_max: int) -> None:
    log, source = open_log(kept), open_log(0)
    starts: list[int] = []
    for what, how in steps:
        if what == "append":
            # The same frame in both, so the other has what this one can be fed with.
            starts.append(log.end_position)
            append(log, how)
            append(source, how)
        elif what == "raw":
            first = source.end_position
            for number in range(how):
                starts.append(source.end_position)
                append(source, number)
            log.append_raw(source.read(first, 1 << 20))
            while log.end_position < source.end_position:
                log.append_raw(source.read(log.end_position, 1 << 20))
        elif what == "cut" and starts:
            position = starts[how % len(starts)]
            del starts[how % len(starts) :]
            log.cut(position)
            source.cut(position)
            assert log.durable_position == source.durable_position
        elif what == "sync":
            # What was synced stands in the frames that follow.
            for each in (log, source):
                each.write_pending()
                each.sync()
        bounds = {*starts, log.end_position}
        for start in starts:
            data = log.read(start, bytes_max)
            wanted = source.read(start, 1 << 20)
            assert data
            assert start + len(data) in bounds
            assert wanted[: len(data)] == data[: len(wanted)]
            first = min(bound for bound in bounds if bound > start) - start
            assert len(data) <= max(first, bytes_max)


def test_the_oldest_go_first() -> None:
    recent = RecentFrames(10)
    for at in range(0, 20, 4):
        recent.add(at, [b"1234"], 4, one_frame=True)
    assert [recent.read(at, 100) for at in (0, 8, 12, 16)] == [None, None, b"12341234", b"1234"]
    assert recent.read(13, 100) is None
    recent.add(20, [b"x" * 11], 11, one_frame=True)
    assert recent.read(20, 100) is None, "more than is kept at all"

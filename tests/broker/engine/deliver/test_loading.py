"""Loading from a slow disk: the loop reads nothing itself, and what is due soon waits for nothing.

Work is driven as the node does it: its slices here, its jobs on another thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.deliver.loader import Loader
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.files.os_file_system import OsFile
from delaylog.storage.hours import hour_rewrite
from delaylog.storage.hours.compaction import Removal
from delaylog.storage.work import Work
from tests.storage.hours.hour_model import noted_reads

HOUR = 3_600_000


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads of all reads of files."""
    return noted_reads(monkeypatch, OsFile, "pread", lambda *_: threading.get_ident())


def with_worker(host: Any, work: Work) -> Iterator[None]:
    """Drive work a step at a time."""
    with ThreadPoolExecutor(1) as worker:
        for step in work:
            if callable(step):
                worker.submit(step).result()
            elif step is not None:
                host.sync()
            yield


def cold(host: Any) -> None:
    """Everything is in files that nobody has open or has in memory."""
    host.flush()
    host.checkpoint()
    for hour in host.engine.state.hours.folders.by_hour.values():
        hour.close_files()
        hour.heads.drop()


@pytest.mark.parametrize("past", [False, True])
def test_the_loop_reads_no_chains(host: Any, reads: list[int], *, past: bool) -> None:
    """Seconds of an opened hour, near ones and a backlog, whose states are on the disk as well."""
    for second in range(30):
        host.send(40, delay=100_000 + second * 1_000)
    host.sync()
    host.engine.run_due(host.now_ms)
    host.cancel(host.ids_of(host.send(1, delay=100_500)))
    cold(host)
    host.now_ms += 30 * 60_000 if past else 95_000
    engine, loader = host.engine, host.engine.dispatcher.loader
    reads.clear()
    jobs = 0
    while engine.run_due(host.now_ms) or loader.loading:
        for make in (loader.near_work, loader.far_work):
            jobs += sum(1 for _ in with_worker(host, make()))
    assert threading.get_ident() not in reads
    assert len(reads) > 0
    host.turn()
    if not past:
        host.advance(60_000)
    assert len(host.bodies(2_000)) == 1_200


def test_this_hour_is_loaded_while_the_next_one_is_opened(host: Any) -> None:
    """The checks of a large next hour take minutes on a slow disk."""
    host.advance(35 * 60_000)
    host.send(10, delay=20_000)
    for _ in range(3):
        host.send([b"x" * 900_000] * 10, delay=20 * 60_000)
        host.flush()
    loader = host.engine.dispatcher.loader
    host.turn = host.sync
    opening: Iterator[None] | None = None
    for _ in range(20 * 60):
        host.now_ms += 1_000
        host.engine.run_due(host.now_ms)
        if loader.near:
            list(with_worker(host, loader.near_work()))
        if loader.far and opening is None:
            opening = with_worker(host, loader.far_work())
            next(opening)
            break
    assert opening is not None
    host.send([b"soon"], delay=15_000)
    host.flush()
    host.now_ms += 15_000
    for _ in range(3):
        host.engine.run_due(host.now_ms)
        if loader.near:
            list(with_worker(host, loader.near_work()))
    assert b"soon" in host.bodies(100)
    assert next(opening, "over") != "over", "the next hour is still being opened"


def test_an_hour_that_takes_long_to_check_is_open_when_it_begins(host: Any) -> None:
    """Its records are checked with their seconds then, as those of an hour that has begun."""
    for k in range(20):
        host.send([b"x" * 900_000] * 5, delay=40 * 60_000 + k)
        host.flush()
    loader, begin_ms = host.engine.dispatcher.loader, host.now_ms + 40 * 60_000
    assert begin_ms % HOUR == 0
    host.turn = host.sync
    host.now_ms = begin_ms - 60_000
    host.engine.run_due(host.now_ms)
    for _ in with_worker(host, loader.far_work()):
        # A slow disk: each part takes three seconds.
        host.now_ms += 3_000
        host.engine.run_due(host.now_ms)
    assert host.now_ms < begin_ms
    host.now_ms = begin_ms + 20
    while host.engine.run_due(host.now_ms) or loader.near:
        list(with_worker(host, loader.near_work()))
    assert len(host.bodies(10)) == 10


@pytest.mark.parametrize("stall_s", [3, 14, 30, 50])
def test_what_a_stall_left_behind_comes_in_order(host: Any, stall_s: int) -> None:
    """The process stood still while messages of many seconds fell due."""
    for k in range(stall_s + 10):
        host.send([b"%d" % k], delay=2_000 + k * 1_000)
    host.flush()
    host.advance(500)
    host.now_ms += stall_s * 1_000 + 1_500
    loader = host.engine.dispatcher.loader
    got: list[bytes] = []
    host.turn = host.sync
    while True:
        more = host.engine.run_due(host.now_ms)
        got += host.bodies(100)
        if loader.near:
            for _ in with_worker(host, loader.near_work()):
                host.engine.run_due(host.now_ms)
                got += host.bodies(100)
        elif loader.loading:
            host.engine.run_inline(loader.load_work())
        elif not more:
            break
    assert len(got) >= stall_s
    assert got == [b"%d" % k for k in range(len(got))]


def test_seconds_whose_load_fails_while_others_are_requested(host: Any) -> None:
    """The disk is full when the tail of their hour is flushed, and they are loaded later."""
    host.send([b"first"], delay=65_000)
    host.send([b"second"], delay=66_500)
    host.sync()
    engine, loader = host.engine, host.engine.dispatcher.loader
    host.now_ms += 55_500
    engine.run_due(host.now_ms)
    work = loader.near_work()
    assert callable(next(work))
    host.now_ms += 1_500
    engine.run_due(host.now_ms)
    with pytest.raises(DiskFullError):
        work.throw(DiskFullError("no space"))
    host.turn()
    host.advance(12_000)
    assert host.bodies(10) == [b"first", b"second"]


def test_an_hour_whose_verification_fails_is_not_in_use(host: Any) -> None:
    """Not even while the error is kept: a compaction of the hour would wait for it for ever."""
    host.send(5, delay=HOUR)
    host.flush()
    cold(host)
    host.now_ms += 39 * 60_000 + 30_000
    engine, loader = host.engine, host.engine.dispatcher.loader
    engine.run_due(host.now_ms)
    work = loader.far_work()
    folder = None
    while folder is None or not folder.files.readers:
        step = next(work)
        if callable(step):
            step()
        folder = engine.state.hours.folders.by_hour[max(engine.state.hours.counts)]
    with pytest.raises(DiskFullError) as caught:
        work.throw(DiskFullError("no space"))
    assert folder.files.readers == 0
    assert str(caught.value) == "no space"


def test_a_hot_second_of_an_hour_that_is_being_compacted(
    open_host: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy begins between two renames: it has no old rows with new records."""
    host = open_host(hot_rows_min=8)
    host.configure(ended_keep_ms=0)
    host.cancel(host.ids_of(host.send([b"gone-%02d" % k for k in range(20)], delay=60_000)))
    bodies = [b"body-%02d" % k for k in range(20)]
    host.send(bodies, delay=60_000)
    host.flush()
    with monkeypatch.context() as patched:
        patched.setattr(Loader, "laying_out", False)
        host.advance(52_000)
    loader, hours = host.engine.dispatcher.loader, host.engine.state.hours
    assert loader.laying_out
    copying, real = loader.lay_out_work(), hour_rewrite._replace
    steps: list[object] = []

    def replace(fs: FileSystem, folder: str) -> None:
        fs.rename(f"{folder}/delay.log.tmp", f"{folder}/delay.log")
        steps.append(next(copying))
        real(fs, folder)

    monkeypatch.setattr(hour_rewrite, "_replace", replace)
    gone = np.arange(40) < 20
    removal = Removal(gone, np.zeros(40, np.bool_), states=False)
    host.engine.run_inline(hours.compact(host.now_ms // HOUR, removal))
    for step in chain(steps, copying):
        if callable(step):
            step()
    assert len(host.engine.state.hot) == 1
    host.advance(8_000)
    assert host.bodies() == bodies

"""Many threads on one broker under the wall's clock: group commit, waits that are woken, dials."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from time import monotonic, time
from typing import Any

import pytest

from delaylog.broker.embedded import ClosedError, EmbeddedBroker, ManualClock
from delaylog.broker.embedded.node import EmbeddedNode
from delaylog.broker.engine.upkeep import housekeeping
from delaylog.client.errors import DiskFull, NotFound, NotReady
from delaylog.storage.errors import DiskFailedError, DiskFullError
from delaylog.storage.files.os_file_system import OsFile
from tests.waiting import await_that

Nodes = list[EmbeddedNode]


@pytest.fixture(params=["always", "everysec"])
def live(open_embedded: Any, request: pytest.FixtureRequest) -> EmbeddedBroker[Any]:
    """A broker under the wall's clock: calls wait for the disk, or write and go on."""
    return open_embedded(fsync=request.param)


def test_each_message_is_handed_to_one_of_many(nodes: Nodes, live: EmbeddedBroker[Any]) -> None:
    """Eight senders and four workers: every message is handled once, and commits are shared."""
    each, senders = 100, 8
    handled: Counter[bytes] = Counter()
    lock = threading.Lock()

    def send(number: int) -> None:
        for k in range(each):
            live.send("t", f"{number}-{k}")

    def work() -> None:
        while True:
            messages = live.receive("t", max=20, wait=timedelta(seconds=10))
            live.ack(messages)
            with lock:
                handled.update(message.body for message in messages)
                if b"end" in handled:
                    return

    with ThreadPoolExecutor(senders + 4) as pool:
        workers = [pool.submit(work) for _ in range(4)]
        for sent in [pool.submit(send, number) for number in range(senders)]:
            sent.result()
        live.send_many("t", ["end"] * 4)
        for worker in workers:
            worker.result(timeout=60)
        rest = live.receive("t", max=10_000)
        handled.update(message.body for message in rest)
    handled.pop(b"end")
    assert len(handled) == each * senders
    assert set(handled.values()) == {1}
    assert nodes[0].log_commits.commits < 2 * each * senders


def test_a_wait_ends_at_the_message_s_time_and_not_before(live: EmbeddedBroker[Any]) -> None:
    due_ms = live.send("t", "x", delay=timedelta(milliseconds=120)).deliver_at_ms
    (message,) = live.receive("t", wait=timedelta(seconds=10))
    assert message.deliver_at_ms == due_ms <= time() * 1000


def test_a_wait_is_woken_by_another_thread(live: EmbeddedBroker[Any]) -> None:
    live.put_topic("t")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(live.receive, "t", wait=timedelta(seconds=30))
        live.send("t", "x")
        assert [message.text for message in waiting.result(timeout=20)] == ["x"]


def test_a_wait_that_finds_nothing_is_over_in_time(live: EmbeddedBroker[Any]) -> None:
    began = monotonic()
    assert live.receive("nowhere", wait=timedelta(milliseconds=60)) == []
    assert monotonic() - began >= 0.06


def test_a_lease_ends_for_whoever_waits(live: EmbeddedBroker[Any]) -> None:
    live.put_topic("t", {"backoff": {"first_ms": 0}})
    live.send("t", "x")
    (first,) = live.receive("t", lease=timedelta(milliseconds=100))
    (second,) = live.receive("t", wait=timedelta(seconds=10))
    assert (first.ref, second.attempts) == (second.ref, 2)


def test_close_ends_the_waits_of_others(live: EmbeddedBroker[Any]) -> None:
    began = threading.Event()

    def wait() -> None:
        began.set()
        live.receive("t", wait=timedelta(minutes=1))

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        began.wait()
        live.close()
        with pytest.raises(ClosedError):
            waiting.result(timeout=20)


def test_a_manual_clock_wakes_who_waits(open_embedded: Any) -> None:
    """The wait is one of real time, which ends early when the clock passes it."""
    broker = open_embedded(clock=ManualClock(), fsync="never")
    broker.send("t", "x", delay=timedelta(seconds=1))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.receive, "t", wait=timedelta(seconds=30))
        broker.clock.advance(seconds=1)
        assert [message.text for message in waiting.result(timeout=20)] == ["x"]
        waiting = pool.submit(broker.receive, "nowhere", wait=timedelta(seconds=30))
        while not waiting.done():
            broker.clock.advance(seconds=10)
        assert waiting.result() == []


@pytest.mark.parametrize("fsync", ["always", "everysec", "never"])
def test_what_was_closed_is_there_whatever_the_dial(
    open_embedded: Any, tmp_path: Path, fsync: str
) -> None:
    with open_embedded(tmp_path / "f", fsync=fsync) as broker:
        broker.send_soon("t", "a", delay=timedelta(minutes=1))
        broker.send_columns("t", [b"b"], wait=False)
        broker.ack(broker.receive("t"), wait=False)
        broker.flush()
    again = open_embedded(tmp_path / "f")
    assert again.stats("t").sent == 2


def test_everysec_syncs_by_itself(nodes: Nodes, open_embedded: Any) -> None:
    broker = open_embedded(fsync="everysec")
    broker.send("t", "x")
    log = nodes[0].engine.state.log
    until = monotonic() + 20
    while log.durable_position < log.end_position:
        assert monotonic() < until, "nobody synced the log"
        broker.receive("t", wait=timedelta(milliseconds=20))


def test_upkeep_goes_on_beside_the_calls(
    nodes: Nodes, open_embedded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints are taken by themselves, and a crash then replays next to nothing."""
    monkeypatch.setattr("delaylog.broker.engine.upkeep.checkpoints.CHECKPOINT_BYTES", 100_000)
    broker = open_embedded(fsync="never")
    upkeep = nodes[0].engine.upkeep
    until = monotonic() + 30
    while upkeep.checkpoints < 2:
        assert monotonic() < until, "no checkpoint was taken"
        broker.send_columns("t", [b"x" * 100] * 500)
        broker.ack(broker.receive("t", max=1_000))
    assert broker.stats("t").counts.leased == 0


@pytest.mark.parametrize("manual", [True, False])
def test_close_ends_those_who_wait_for_a_full_disk(
    nodes: Nodes, open_embedded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manual: bool
) -> None:
    """What was answered is there."""
    broker = open_embedded(tmp_path / "f", clock=ManualClock() if manual else None)
    sent = broker.send("t", "answered")
    full = threading.Event()

    def no_room(*_: Any, **__: Any) -> bool:
        full.set()
        raise DiskFullError("no space")

    log = nodes[0].engine.state.log
    monkeypatch.setattr(log, "write_pending", no_room)
    monkeypatch.setattr(log, "sync", no_room)
    with ThreadPoolExecutor(4) as threads:
        sending = threads.submit(broker.send, "t", "waits")
        assert full.wait(30)
        full.clear()
        receiving = threads.submit(broker.receive, "t", max=2)
        assert full.wait(30)
        threads.submit(broker.close).result(20)
        with pytest.raises(ClosedError, match="closed: open its folder"):
            sending.result(30)
        assert isinstance(receiving.exception(30), ClosedError)
    again = open_embedded(tmp_path / "f", clock=ManualClock())
    assert sent.id in [message.id for message in again.browse("t")]


@pytest.mark.parametrize("fsync", ["everysec", "never"])
def test_more_than_memory_holds_goes_to_the_hours_whatever_the_dial(
    nodes: Nodes, open_embedded: Any, fsync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sends go on past what may wait to be split: upkeep has the log synced by itself."""
    monkeypatch.setattr("delaylog.storage.hours.tails.TAIL_BYTES_MAX", 1 << 18)
    monkeypatch.setattr(housekeeping, "TAIL_BYTES_HARD_MAX", 1 << 19)
    monkeypatch.setattr("delaylog.broker.engine.upkeep.checkpoints.CHECKPOINT_MS", 3_600_000)
    broker = open_embedded(fsync=fsync)
    body, rounds, each = b"x" * 1_000, 10, 300
    for _ in range(rounds):
        broker.send_columns("t", [body] * each, delay_ms=86_400_000)
    hours = nodes[0].engine.state.hours
    assert hours.pile.size_bytes <= 2 * housekeeping.TAIL_BYTES_HARD_MAX
    assert sum(hours.flushed(hour) for hour in hours.counts) > rounds * each // 2


def test_what_nobody_waits_for_is_written_at_once_where_that_is_all(
    nodes: Nodes, open_embedded: Any
) -> None:
    broker = open_embedded(fsync="never")
    broker.send("t", "one", wait=False)
    log = nodes[0].engine.state.log
    assert log.written_position == log.end_position


@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_what_nobody_waits_for_waits_for_no_full_disk(
    nodes: Nodes, open_embedded: Any, monkeypatch: pytest.MonkeyPatch, fsync: str
) -> None:
    """The call returns; what it appended is written once there is room, and is there."""
    broker = open_embedded(fsync=fsync)
    broker.send("t", "before")
    log = nodes[0].engine.state.log
    with monkeypatch.context() as patched, ThreadPoolExecutor(1) as threads:

        def no_room(*_: Any, **__: Any) -> bool:
            raise DiskFullError("no space")

        patched.setattr(log, "write_pending", no_room)
        sending = threads.submit(broker.send, "t", "while full", wait=False)
        try:
            sending.result(30)
        finally:
            patched.undo()
    broker.flush(timeout=timedelta(seconds=30))
    assert [message.text for message in broker.receive("t", max=9)] == ["before", "while full"]


@pytest.mark.parametrize(("fsync", "step"), [("always", "fdatasync"), ("never", "pwritev")])
def test_ctrl_c_in_a_commit_takes_nothing_along(
    nodes: Nodes,
    open_embedded: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fsync: str,
    step: str,
) -> None:
    """It comes out of the call that it met; the next ones go on, and all of them are there."""
    broker = open_embedded(tmp_path / "f", fsync=fsync)
    broker.send("t", "before", id="before")
    real = getattr(OsFile, step)
    main = threading.main_thread().ident
    assert main is not None

    def interrupted(*how: Any) -> None:
        signal.pthread_kill(main, signal.SIGINT)
        real(*how)

    with monkeypatch.context() as patched:
        patched.setattr(OsFile, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            broker.send("t", "meanwhile", id="meanwhile")
    broker.send("t", "after", id="after")
    broker.close()
    again = open_embedded(tmp_path / "f")
    assert {each.id for each in again.browse("t")} == {"before", "meanwhile", "after"}


@pytest.mark.parametrize("fsync", ["always", "everysec", "never"])
@pytest.mark.parametrize("manual", [False, True])
def test_a_failed_disk_is_told_to_those_who_wait_for_nothing(
    open_embedded: Any, monkeypatch: pytest.MonkeyPatch, fsync: str, manual: bool
) -> None:
    """Nobody goes on as if all was well: by a dial that writes it is the call that met it."""
    how = {"clock": ManualClock()} if manual else {}
    broker = open_embedded(fsync=fsync, **how)
    broker.send("t", "before")

    def broken(*_: Any) -> int:
        raise DiskFailedError("EIO")

    monkeypatch.setattr(OsFile, "pwritev", broken)
    if fsync == "always":
        # The thread that writes meets it, if nobody else does.
        broker.send("t", "lost", wait=False)
        with pytest.raises((NotReady, ClosedError)):
            broker.flush()
    with pytest.raises((NotReady, ClosedError)):
        broker.send("t", "lost", wait=False)


def test_a_full_disk_refuses_sends_of_those_who_wait_for_nothing(
    open_embedded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a clock moved by hand no thread tries; what was taken is written once there is room."""
    broker = open_embedded(fsync="never", clock=ManualClock())
    broker.send("t", "before")

    def full(*_: Any) -> int:
        raise DiskFullError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(OsFile, "pwritev", full)
        broker.send("t", "taken", wait=False)
        with pytest.raises(DiskFull):
            broker.send("t", "refused", wait=False)
    broker.flush()
    assert [message.text for message in broker.receive("t", max=9)] == ["before", "taken"]


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_who_waits_hears_at_once_that_a_group_has_gone(
    nodes: Nodes, open_embedded: Any, fsync: str
) -> None:
    """The call that drops it tells, and nobody who only looks now and then."""
    broker = open_embedded(fsync=fsync)
    broker.put_topic("t")
    broker.put_group("t", "x")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.receive, "t", group="x", wait=timedelta(minutes=1))
        await_that(lambda: len(nodes[0].waiters) == 1)
        broker.drop_group("t", "x")
        with pytest.raises(NotFound):
            waiting.result(timeout=20)

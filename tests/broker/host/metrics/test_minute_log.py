"""The rows of a node on a clock of its own: which minute they are of, what they count, and causes.

The node is a stand-in around a real engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.engine.watch.histogram import Histogram
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.metrics import minute_log
from delaylog.broker.host.metrics.minute_log import MinuteLog
from delaylog.broker.host.metrics.minutes import MINUTE_MS, MinuteRow, UntakenGroup, read_rows
from delaylog.broker.host.watch.loop_lag import BOUNDS
from delaylog.broker.host.watch.timings import Timings
from tests.broker.engine.host import Host
from tests.broker.engine.late.test_waits import asking


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.close()


@pytest.fixture
def node(host: Host) -> Any:
    return SimpleNamespace(
        engine=host.engine,
        clock=SimpleNamespace(now_ms=lambda: host.now_ms),
        role=SimpleNamespace(leading=True),
        timings=Timings(),
        loop_lag=SimpleNamespace(histogram=Histogram(BOUNDS)),
        space=SimpleNamespace(measured_bytes=lambda: 5, take_refused=lambda: False),
        machine=REAL,
    )


class Rows:
    """Writes one row after the other."""

    def __init__(self, node: Any, folder: Path) -> None:
        self.log, self.folder, self.minute = MinuteLog(node, str(folder)), folder, 0

    def next(self) -> MinuteRow:
        self.minute += 1
        asyncio.run(self.log.write(self.minute))
        return read_rows(str(self.folder), self.minute, self.minute + 1)[0]


@pytest.fixture
def rows(node: Any, tmp_path: Path) -> Rows:
    return Rows(node, tmp_path)


def test_a_dropped_topic_takes_only_its_own_counts_along(host: Host, rows: Rows) -> None:
    host.send(5)
    host.ack(host.receive())
    host.send(1, topic="other")
    assert (rows.next().sent, rows.next().sent) == (6, 0)
    host.drop_topic()
    host.send(3, topic="other")
    found = rows.next()
    assert (found.sent, found.delivered) == (3, 0)


def test_another_engine_counts_from_zero(host: Host, node: Any, rows: Rows) -> None:
    """Purpose: a node that takes another engine over has no negative counts, and does not count
    the history of a copied folder. Method: a late message before, a later one after.
    """
    host.send(2, delay=0)
    host.advance(60)
    host.receive(1)
    assert sum(rows.next().out_late) == 1
    host.restart(pause_ms=10)
    node.engine = host.engine
    host.advance(700)
    host.receive(1)
    found = rows.next()
    assert sum(found.out_late) == 1
    assert min(found.out_late) == min(found.ready_late) == 0
    assert (found.sent, found.delivered) == (0, 0)
    host.send(1)
    assert rows.next().sent == 1


def test_the_latest_messages_have_causes(host: Host, rows: Rows) -> None:
    """A pause, then nobody who asks; and a key that another message locked."""
    host.send(1, ids=["a"])
    host.pause()
    host.advance(4_000)
    host.pause(paused=False)
    host.advance(1_000)
    with asking(host):
        host.ack(host.receive())
    (late,) = rows.next().late
    assert late[:3] == ("t", "a", 5_000)
    assert late.at_ms == host.now_ms
    assert late[4:6] == ("default", "default")
    assert late.causes == [["paused", 4_000], ["no_consumers", 1_000]]
    with asking(host):
        host.send(2, ids=["b", "c"], keys=["k", "k"])
        first = host.receive(5)
        host.advance(2_000)
        host.ack(first)
        host.ack(host.receive(5))
    (late,) = rows.next().late
    assert (late.message_id, late.causes) == ("c", [["key", 2_000]])
    assert rows.next().late == []


def test_a_key_that_was_unlocked_before_nobody_asked(host: Host, rows: Rows) -> None:
    """The key counts until its end, and not while the message only waited for a consumer."""
    with asking(host):
        host.send(2, ids=["a", "b"], keys=["k", "k"])
        first = host.receive(5)
        host.advance(2_000)
        host.ack(first)
    host.advance(3_000)
    with asking(host):
        host.receive(5)
    (late,) = rows.next().late
    assert late.causes == [["no_consumers", 3_000], ["key", 2_000]]


def test_nobody_asked_before_a_key_was_locked(host: Host, rows: Rows) -> None:
    """The key counts from the first call on, and not from the due time."""
    host.send(2, ids=["a", "b"], keys=["k", "k"])
    host.advance(60_000)
    with asking(host):
        first = host.receive(5)
        host.advance(1_000)
        host.ack(first)
        host.receive(5)
    (late,) = rows.next().late
    assert (late.message_id, late.causes) == ("b", [["no_consumers", 60_000], ["key", 1_000]])


def test_a_backlog_waits_for_consumers_that_take_others(host: Host, rows: Rows) -> None:
    """Somebody asks all the time, and takes one message after the other."""
    with asking(host):
        host.send(3, ids=["a", "b", "c"])
        for _ in range(3):
            host.ack(host.receive(1))
            host.advance(500)
    (late,) = rows.next().late
    assert (late.message_id, late.causes) == ("c", [["slow_consumers", 1_000]])


def test_a_message_of_a_dropped_topic_is_left_out(host: Host, rows: Rows) -> None:
    host.send(1)
    host.advance(1_000)
    host.receive()
    host.drop_topic()
    assert rows.next().late == []


def test_groups_of_which_nobody_took_ready_messages(host: Host, node: Any, rows: Rows) -> None:
    """Purpose: other topics that are busy do not hide one. Method: ready over two rows; a pause;
    a hand-out; a follower.
    """
    place = "default", "t", "default"

    def untaken(ms: int = MINUTE_MS) -> list[UntakenGroup]:
        host.advance(ms)
        return rows.next().untaken

    host.send(3)
    assert untaken() == [], "ready for less than a minute"
    assert untaken(3_000) == [], "a part of a minute"
    assert untaken() == [UntakenGroup(*place, "no_consumers")]
    host.pause()
    assert untaken() == [UntakenGroup(*place, "paused")]
    host.pause(paused=False)
    with asking(host):
        host.receive(1)
    assert untaken() == []
    node.role.leading = False
    assert untaken() == []


def test_who_wakes_late_writes_the_minute_in_which_it_fell_asleep(
    node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: a blocked loop skips no minute. Method: short minutes, and a loop that is blocked
    over an end; the next row is of the minute in which it goes on.
    """
    monkeypatch.setattr(minute_log, "MINUTE_MS", 200)
    now = [1_000.0]
    node.clock.now_ms = lambda: int(now[0])

    async def run() -> None:
        log = MinuteLog(node, str(tmp_path))
        log.start()
        for after_ms in (390, 410, 600):
            await asyncio.sleep(0.01)
            now[0] = 1_000.0 + after_ms
            await asyncio.sleep(0.25)
        await log.stop()

    asyncio.run(run())
    assert [row.minute for row in read_rows(str(tmp_path), 0, 100)][:3] == [5, 6, 7]


def test_a_stop_writes_the_rest_of_a_minute_once(
    node: Any, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: a stop while a row is written loses neither part. Method: the first write takes
    until messages were sent and the stop has begun.
    """
    monkeypatch.setattr(minute_log, "MINUTE_MS", 100)
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow:
        async def in_thread(self, call: Any) -> Any:
            begun.set()
            await go_on.wait()
            return call()

    node.machine = Slow()
    node.clock.now_ms = lambda: 1_000

    async def run() -> None:
        log = MinuteLog(node, str(tmp_path))
        host.send(2)
        log.start()
        await begun.wait()
        host.send(3)
        stopping = asyncio.create_task(log.stop())
        await asyncio.sleep(0)
        go_on.set()
        await stopping

    asyncio.run(run())
    (found,) = read_rows(str(tmp_path), 0, 100)
    assert (found.minute, found.sent) == (10, 5)

"""Delivery in time: at the millisecond, never early, over any restart, far ahead, far behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.errors import DiskFullRefusal
from delaylog.broker.engine.ready.fifo_queue import FifoQueue
from delaylog.broker.engine.send.sends import send
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import MessageState as S
from delaylog.storage.messages.batch import decode_send, encode_send

HOUR = 3_600_000
YEAR = 365 * 86_400_000


@pytest.mark.parametrize("delay", [0, 1, 999, 1_000, 9_999, 10_000, 10_001, 65_000, HOUR, 5 * HOUR])
@pytest.mark.parametrize("stop", ["none", "restart", "checkpoint"])
def test_ready_at_its_millisecond(host, delay: int, stop: str) -> None:
    """One before it nothing is there, at it the message is."""
    host.now_ms += 123
    host.send(1, delay=delay)
    if stop == "restart":
        host.restart()
    elif stop == "checkpoint":
        host.checkpoint()
        host.restart()
    if delay:
        host.advance(delay - 1)
        assert host.receive() == []
        host.advance(1)
    (got,) = host.receive()
    assert got.deliver_at_ms == host.now_ms


def test_a_frame_that_was_never_written_is_lost_and_nothing_else(host) -> None:
    """A crash drops what was only appended; the epoch tag keeps its refs from naming others."""
    host.send([b"kept"], delay=1_000)
    lost = host.send([b"lost"], delay=1_000, turn=False)
    host.crash()
    host.send([b"new"], delay=1_000)
    assert host.find(host.ids_of(lost)) == [None]
    host.advance(1_000)
    assert host.bodies() == [b"kept", b"new"]


def test_rows_across_an_hour_boundary(host) -> None:
    """One batch, several hours: each row in its own, all delivered in order."""
    rest = HOUR - host.now_ms % HOUR
    delays = [rest + d for d in (-2, -1, 0, 1, 999, 1_000, HOUR - 1, HOUR, HOUR + 1)]
    order = [4, 0, 8, 2, 6, 1, 7, 3, 5]
    host.send([b"%d" % k for k in order], delay=[delays[k] for k in order])
    assert len(host.engine.state.hours.counts) == 3
    host.advance(rest + HOUR + 1)
    assert host.bodies() == [b"%d" % k for k in range(9)]


@pytest.mark.parametrize("flushed", [False, True])
def test_ten_years_out(host, flushed: bool) -> None:
    """It waits without being touched and comes to the millisecond."""
    host.send(1, delay=10 * YEAR)
    if flushed:
        host.checkpoint()
        host.restart()
    turns = host.engine.state.wheel.turns
    host.advance(10 * YEAR - 1)
    assert host.receive() == []
    assert host.engine.state.wheel.turns <= turns + 3
    host.advance(1)
    assert host.bodies() == [b"0"]


def test_a_backlog_streams_in_oldest_first_while_new_messages_are_served(host) -> None:
    """After three days down: fresh ones do not wait for the past, the past comes in its order."""
    hours = 12
    for hour in range(hours):
        host.send([b"%d" % hour] * 20, delay=hour * HOUR + 100)
    host.checkpoint()
    host.engine.close()
    host.now_ms += 72 * HOUR
    open_without_turning(host)
    engine = host.engine
    fresh = host.send([b"fresh"], turn=False)
    assert fresh.results == 0
    host.sync()
    engine.run_due(host.now_ms)
    assert len(host.topic.default.ready) >= 1, "served before the backlog is loaded"
    assert engine.dispatcher.loader.loading
    host.turn()
    bodies = host.bodies(10_000)
    assert bodies.count(b"fresh") == 1
    bodies.remove(b"fresh")
    assert bodies == [b"%d" % hour for hour in range(hours) for _ in range(20)]


def open_without_turning(host) -> None:
    turn, host.turn = host.turn, lambda: None
    host.open()
    host.turn = turn


def test_rows_below_the_hour_floor_live_in_the_floor_hour(host) -> None:
    """A clock that came back behind the floor: the message is stored there and still delivered."""
    host.send(1, delay=100)
    host.advance(5 * HOUR)
    host.ack(host.receive())
    host.checkpoint()
    floor = host.engine.state.hour_floor
    assert floor == host.now_ms // HOUR - 1
    host.engine.close()
    host.now_ms -= 3 * HOUR
    host.open()
    result = host.send([b"low"], delay=1_000)
    assert host.state_of(host.ids_of(result)[0]) is S.WAITING
    host.restart()
    host.advance(3 * HOUR)
    assert host.bodies() == [b"low"]


def test_a_topic_is_made_and_changed_and_survives(host) -> None:
    """Settings hold for messages sent afterwards, over a restart and a checkpoint."""
    host.configure(max_retry=0, ttl_ms=1_000)
    for keep in (host.restart, host.checkpoint, host.restart):
        keep()
        assert host.topic.settings.max_retry == 0
        assert host.topic.made
    host.configure(max_retry=5)
    host.restart()
    assert host.topic.settings.max_retry == 5
    assert len(host.engine.state.topics) == 1


def test_messages_of_several_topics_do_not_mix(host) -> None:
    """Same seconds, same hour files, own ready queues."""
    for name in "abcabc":
        host.topic_name = name
        host.send([name.encode()] * 3, delay=2_000)
    host.checkpoint()
    host.restart()
    host.advance(2_000)
    for name in "abc":
        host.topic_name = name
        assert host.bodies() == [name.encode()] * 6
        host.check_counts()


def test_the_ready_queue_spills_and_stays_first_in_first_out(tmp_path) -> None:
    """Beyond its head refs go to disk and come back in order; returned ones stand in front."""
    runs: list[ScratchQueue] = []

    def make_run() -> ScratchQueue:
        runs.append(ScratchQueue(OsFileSystem(), str(tmp_path / "run")))
        return runs[-1]

    queue = FifoQueue(make_run, head_max=100)
    for first in range(0, 1_000, 40):
        queue.push(np.arange(first, first + 40))
    assert len(queue) == 1_000
    assert len(runs[0]) == 920
    taken = queue.pop(50)
    queue.push_front(taken[10:])
    queue.push(np.arange(1_000, 1_005))
    out = [*taken[:10].tolist()]
    while len(queue):
        out += queue.pop(77).tolist()
    assert out == list(range(1_005))
    queue.push(np.arange(3))
    assert queue.pop(9).tolist() == [0, 1, 2]
    queue.push(np.arange(500))
    queue.clear()
    assert len(queue) == 0
    assert not (tmp_path / "run").exists()


def test_the_present_hour_opened_late_makes_nothing_ready_twice(host) -> None:
    """Ready messages nobody has taken yet stand in chains that the first far message opens."""
    host.send(20, delay=1_000)
    host.advance(5_000)
    assert len(host.topic.default.ready) == 20
    host.send([b"far"], delay=20_000)
    host.advance(15_000)
    assert len(host.topic.default.ready) == 20
    host.advance(5_000)
    assert len(host.topic.default.ready) == 21


def test_a_receive_that_reads_a_hot_second_to_its_end_and_looks_for_more(
    open_host: Callable[..., Any],
) -> None:
    """What it found must not go while it looks on: some of what it popped had been cancelled."""
    host = open_host(hot_rows_min=8)
    second = (host.now_ms // 1000 + 60) * 1000
    ids = host.ids_of(host.send(40, at=[second + k for k in range(40)]))
    host.advance(52_000)
    assert len(host.engine.state.hot) == 1
    host.send([b"later"], at=second + 100)
    host.advance(9_000)
    assert host.cancel(ids[5:8]) == [0] * 3
    assert host.bodies(40) == [b"%d" % k for k in range(40) if not 5 <= k < 8] + [b"later"]


def test_a_hot_second_without_room_for_a_copy(
    open_host: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = open_host(hot_rows_min=8)

    def full(*_: object, **__: object) -> Iterator[None]:
        raise DiskFullError("no space")
        yield

    monkeypatch.setattr(host.engine.state.hot, "lay_out", full)
    host.send(20, delay=60_000)
    host.advance(60_000)
    assert sorted(host.bodies(), key=int) == [b"%d" % k for k in range(20)]


def test_a_ready_queue_on_a_full_disk(tmp_path: Path) -> None:
    """What the run cannot take stays in memory, in order, and goes there once space is back."""
    full = True

    class Run(ScratchQueue):
        def push(self, values: np.ndarray) -> None:
            if full:
                raise DiskFullError("no space")
            super().push(values)

    queue = FifoQueue(lambda: Run(OsFileSystem(), str(tmp_path / "run")), head_max=4)
    for start in range(0, 30, 3):
        full = start < 20
        queue.push(np.arange(start, start + 3))
        assert len(queue) == start + 3
    out: list[int] = []
    full = True
    queue.push(np.arange(30, 33))
    while len(part := queue.pop(2)):
        out += part.tolist()
    assert out == list(range(33))
    assert len(queue) == 0
    queue.clear()


def test_a_repeated_send_is_answered_when_the_disk_is_full(host) -> None:
    """What was accepted once is answered as it was; only new messages are refused."""
    columns = {"n": 1, "delay_ms": 1_000, "body_size": 1, "bodies": b"x", "producer": "p"}
    topic, state = host.topic, host.engine.state

    def send_again(sequence: int, free_bytes: int) -> np.ndarray:
        batch = decode_send(encode_send(columns | {"sequence": sequence}), rows_max=10)
        return send(state, topic, batch, host.now_ms, free_bytes=free_bytes).refs

    first = send_again(1, 1 << 60)
    assert send_again(1, 0).tolist() == first.tolist()
    with pytest.raises(DiskFullRefusal):
        send_again(2, 0)


def test_a_hot_second_comes_whole_and_in_order(open_host: Callable[..., Any]) -> None:
    """Through its copy: with cancelled ones, live arrivals and retries in between."""
    host = open_host(hot_rows_min=8)
    second = (host.now_ms // 1000 + 60) * 1000
    bodies = [b"%d" % k * (1 + k % 5) for k in range(200)]
    due = [second + (k * 37) % 1000 for k in range(200)]
    ids = host.ids_of(host.send(bodies, at=due))
    host.advance(52_000)
    hot = host.engine.state.hot
    assert len(hot) == 1
    assert host.cancel(ids[10:20]) == [0] * 10
    host.send([b"live"], at=second + 500)
    host.advance(10_000)
    expected = [
        b for _, b in sorted(zip(due[:10] + due[20:], bodies[:10] + bodies[20:], strict=True))
    ]
    expected.insert(
        next(k for k, d in enumerate(sorted(due[:10] + due[20:])) if d > 500 + second), b"live"
    )
    first = host.receive(50)
    assert host.nack(first[:5], delay=0) == 5
    got = [m.body for m in first[5:]] + host.bodies(150)
    assert got == expected[5:50] + expected[:5] + expected[50:]
    assert host.bodies() == []
    host.checkpoint()
    assert len(hot) == 0

"""Time moved by hand, on the real code path: each message at its own millisecond, never before."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable
from contextvars import Context, ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from delaylog.broker.embedded import EmbeddedBroker, ManualClock
from delaylog.broker.embedded.node import Asked

DAY_MS = 86_400_000


def test_thirty_days_pass_and_every_message_comes_on_its_day(
    broker: EmbeddedBroker[ManualClock],
) -> None:
    """Day by day all of it comes, on the day that it is due."""
    start_ms = broker.clock.now_ms()
    delays = np.random.default_rng(5).integers(1, 30 * DAY_MS, 300)
    broker.send_columns("t", [b"%d" % k for k in range(300)], delay_ms=delays)
    came: dict[bytes, int] = {}
    for day in range(1, 31):
        broker.clock.set(start_ms + day * DAY_MS)
        taken = broker.receive("t", max=1_000)
        for message in taken:
            assert start_ms + (day - 1) * DAY_MS < message.deliver_at_ms
            assert message.deliver_at_ms <= start_ms + day * DAY_MS
            came[message.body] = message.deliver_at_ms - start_ms
        broker.ack(taken)
    assert came == {b"%d" % k: delay for k, delay in enumerate(delays.tolist())}
    assert broker.stats("t").counts.acked == 300


def test_a_long_move_stops_where_leases_end_and_at_no_message(
    broker: EmbeddedBroker[ManualClock],
) -> None:
    """Another broker on the clock sees where it stands; messages come in order all the same."""
    clock, seen = broker.clock, []

    class Watcher:
        def next_stop_ms(self) -> None:
            return None

        def clock_moved(self) -> None:
            seen.append(clock.now_ms())

    delays = np.random.default_rng(6).permutation(2_000) * 1_000_003
    broker.send_columns("t", [b"%d" % delay for delay in delays], delay_ms=delays)
    broker.send("leased", "x")
    (leased,) = broker.receive("leased", lease=timedelta(minutes=1))
    start_ms = clock.now_ms()
    clock.attach(Watcher())
    clock.advance(days=30)
    assert leased.lease_until_ms <= seen[1] < leased.lease_until_ms + 50
    assert [seen[0], *seen[2:]] == [start_ms, start_ms + 30 * DAY_MS]
    taken = broker.receive("t", max=3_000)
    assert [int(message.body) for message in taken] == sorted(delays.tolist())


def test_a_checkpoint_comes_by_the_days_of_the_clock(nodes: Any, open_embedded: Any) -> None:
    """A first message alone is no reason for one."""
    broker = open_embedded(clock=ManualClock(), fsync="never")
    upkeep = nodes[0].engine.upkeep
    broker.send("t", "x", delay=timedelta(milliseconds=7 * DAY_MS))
    broker.clock.advance(hours=23)
    assert upkeep.checkpoints == 0
    broker.clock.advance(hours=1)
    assert upkeep.checkpoints == 1
    broker.clock.advance(days=5)
    assert upkeep.checkpoints == 1, "nothing was written since"


def test_keys_and_priorities_hold_over_a_long_move(broker: EmbeddedBroker[ManualClock]) -> None:
    """What was passed over in one move comes as if the clock had stood at each of them."""
    broker.put_topic("p", {"order": "priority"})
    for day in (9, 3, 6):
        broker.send("k", f"day {day}", key="one", delay=timedelta(milliseconds=day * DAY_MS))
        broker.send("p", f"day {day}", priority=day, delay=timedelta(milliseconds=day * DAY_MS))
    broker.clock.advance(days=30)
    came = []
    while messages := broker.receive("k", max=10):
        came.append([message.text for message in messages])
        broker.ack(messages)
    assert came == [["day 3"], ["day 6"], ["day 9"]]
    assert [each.text for each in broker.receive("p", max=9)] == ["day 9", "day 6", "day 3"]


def test_no_disk_is_waited_for_where_nothing_has_to_outlive_the_machine(
    open_embedded: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """`never` under a manual clock; what was sent is there again when the folder is reopened."""
    asked: list[int] = []
    monkeypatch.setattr(os, "fdatasync", asked.append)
    monkeypatch.setattr(os, "fsync", asked.append)
    broker = open_embedded(tmp_path / "f", clock=ManualClock(), fsync="never")
    broker.send("t", "x", delay=timedelta(milliseconds=20 * DAY_MS))
    broker.clock.advance(days=30)
    broker.close()
    assert asked == []
    again = open_embedded(tmp_path / "f", clock=ManualClock(), fsync="always")
    assert [message.text for message in again.receive("t")] == ["x"]
    again.close()
    assert asked


def test_leases_end_on_the_way(broker: EmbeddedBroker[ManualClock]) -> None:
    """In one long move a lease ends, and the message waits its backoff and comes again."""
    broker.put_topic("t", {"backoff": {"first_ms": 1_000, "factor": 2, "jitter": 0}})
    broker.send("t", "x")
    (first,) = broker.receive("t", lease=timedelta(seconds=10))
    broker.clock.advance(ms=10_999)
    assert broker.receive("t") == []
    broker.clock.advance(ms=51)
    (second,) = broker.receive("t", lease=timedelta(seconds=10))
    assert (first.attempts, second.attempts) == (1, 2)
    assert broker.ack(first) == ["gone"]
    assert broker.ack(second) == ["done"]


def test_folders_of_past_hours_go(nodes: Any, open_embedded: Any) -> None:
    """Upkeep runs as the days pass: what has ended is removed from the folder."""
    broker = open_embedded(clock=ManualClock(), fsync="never")
    for day in range(10):
        broker.send("t", "x", delay=timedelta(milliseconds=day * DAY_MS))
    hours = nodes[0].engine.state.hours
    for _ in range(10):
        broker.ack(broker.receive("t"))
        broker.clock.advance(days=1)
    broker.clock.advance(days=5)
    broker.send("t", "the log goes on")
    broker.clock.advance(days=2)
    assert len(hours.counts) < 5


def test_two_brokers_on_one_clock(open_embedded: Any) -> None:
    clock = ManualClock()
    one, other = (open_embedded(clock=clock, fsync="never") for _ in range(2))
    one.send("t", "one", delay=timedelta(seconds=1))
    other.send("t", "other", delay=timedelta(seconds=2))
    clock.advance(seconds=1)
    assert (len(one.receive("t")), len(other.receive("t"))) == (1, 0)
    one.close()
    clock.advance(seconds=1)
    assert len(other.receive("t")) == 1


def test_a_folder_from_later_moves_who_shares_the_clock(open_embedded: Any, tmp_path: Path) -> None:
    """What became due at the others on the way is ready, and the clock goes on."""
    ahead = tmp_path / "ahead"
    with open_embedded(ahead, clock=ManualClock()) as broker:
        broker.send("t", "x")
        broker.clock.advance(hours=2)
    clock = ManualClock()
    first = open_embedded(clock=clock)
    first.send("t", "in an hour", delay=timedelta(hours=1))
    open_embedded(ahead, clock=clock)
    clock.advance(ms=1)
    assert [message.text for message in first.receive("t")] == ["in an hour"]


def test_senders_that_wait_for_nothing_delay_nobody_who_waits(
    broker: EmbeddedBroker[ManualClock],
) -> None:
    """However many they are: here the next one always comes before the loop is idle."""
    thread, ended = broker._thread, threading.Event()

    async def nothing() -> None:
        """A call that is answered at once."""

    def another() -> None:
        if not ended.is_set():
            thread._begin(Asked(nothing(), another, None, soon=True))

    thread._call_soon(another)
    waits = threading.Thread(target=lambda: (broker.receive("t"), ended.set()), daemon=True)
    waits.start()
    waits.join(30)
    told = ended.is_set()
    ended.set()
    assert told


def test_the_context_of_a_caller_is_freed(open_embedded: Any) -> None:
    """Timers and background work live longer than the call that has started them."""

    class Value:
        pass

    var: ContextVar[Value] = ContextVar("var")
    kept: list[weakref.ref[Value]] = []

    def within(call: Callable[[], Any]) -> Any:
        value = Value()
        kept.append(weakref.ref(value))
        var.set(value)
        return call()

    broker = Context().run(within, open_embedded)
    Context().run(within, lambda: broker.send("t", "x", delay=timedelta(minutes=50)))
    broker.send("t", "y")
    gc.collect()
    assert [each() for each in kept] == [None, None]

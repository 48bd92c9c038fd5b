"""Order inside a key while the past is still being loaded."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.ready.deferred import DeferredMessages
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import INDEX_ENTRY, Int64Array, RowArray
from delaylog.wheel import Entries
from tests.effort import tries

HOUR = 3_600_000


class SlowLoads:
    """Turns a host, but loads from disk only so many steps a time."""

    def __init__(self, host: Any) -> None:
        self.host = host
        self.steps = 0
        self.work: Any = None
        host.turn = self.turn

    @property
    def loading(self) -> bool:
        return self.work is not None or self.host.engine.dispatcher.loader.loading

    def crash(self, pause_ms: int) -> None:
        self.work = None
        self.host.crash(pause_ms)

    def turn(self) -> None:
        host, left = self.host, self.steps
        host.sync()
        while True:
            more = host.engine.run_due(host.now_ms)
            if self.work is None and host.engine.dispatcher.loader.loading:
                self.work = host.engine.dispatcher.loader.load_work()
            if self.work is not None and left > 0:
                left -= 1
                step = next(self.work, "end")
                if step == "end":
                    self.work = None
                elif callable(step):
                    step()
                elif step is not None:
                    host.sync()
            elif not more:
                return

    def load_all(self) -> None:
        while True:
            self.steps = 1_000
            self.turn()
            if not self.loading:
                return


def send(host: Any, keys: list[str], first: int, **how: Any) -> None:
    """Numbered messages with keys."""
    host.send([b"%d" % (first + k) for k in range(len(keys))], keys=keys, **how)


@pytest.mark.parametrize("age", [2_000, 90_000, HOUR, 40 * HOUR])
def test_what_has_a_key_waits_for_the_past(host: Any, age: int) -> None:
    send(host, ["a", "b", ""], 0, delay=1_000)
    host.sync()
    slow = SlowLoads(host)
    slow.crash(age + 1_000)
    assert slow.loading, "the past is on disk"
    send(host, ["a", "c", "", "b"], 3)
    assert host.bodies() == [b"5"], "what has no key waits for nothing"
    slow.load_all()
    got = host.receive()
    assert [m.body for m in got] == [b"0", b"1", b"2", b"4"]
    host.ack(got)
    assert host.bodies() == [b"3", b"6"]


def test_it_waits_though_nothing_of_the_past_lives(host: Any) -> None:
    """Loads that give nothing end the wait as well."""
    send(host, ["a", "b"], 0, delay=1_000, ids=["x", "y"])
    host.flush()
    host.sync()
    slow = SlowLoads(host)
    slow.crash(3 * HOUR)
    send(host, ["a"], 2)
    host.cancel(["x", "y"])
    assert host.bodies() == []
    slow.load_all()
    assert host.bodies() == [b"2"]


def test_a_clock_set_back_forgets_what_waits(host: Any) -> None:
    send(host, ["a"], 0, delay=1_000)
    host.sync()
    slow = SlowLoads(host)
    slow.crash(2 * HOUR)
    send(host, ["a"], 1)
    slow.work = None
    host.set_back(HOUR)
    slow.load_all()
    (first,) = host.receive()
    assert first.body == b"0"
    host.ack([first])
    assert host.bodies() == []
    host.advance(HOUR)
    assert host.bodies() == [b"1"]


@pytest.mark.parametrize("seed", range(tries(40)))
def test_in_order_whatever_is_loaded_when(open_host: Any, seed: int) -> None:
    """Sends, receives, crashes and slow loads: what a key gave is in order of due time."""
    random = Random(seed)
    host = open_host()
    host.configure(backoff={"first_ms": 0})
    slow = SlowLoads(host)
    due: dict[bytes, tuple[int, int]] = {}
    keys: dict[bytes, str] = {}
    got: dict[str, list[bytes]] = defaultdict(list)
    span = random.choice([3_000, 120_000, 3 * HOUR])

    def send_some() -> None:
        n = random.randint(1, 6)
        chosen = [random.choice(["a", "b", "c", ""]) for _ in range(n)]
        delays = [random.choice([0, 0, random.randrange(span)]) for _ in range(n)]
        first = len(due)
        for k, (key, delay) in enumerate(zip(chosen, delays, strict=True)):
            due[b"%d" % (first + k)] = (host.now_ms + delay, first + k)
            keys[b"%d" % (first + k)] = key
        send(host, chosen, first, delay=delays)

    def receive_some() -> int:
        messages = host.receive(random.choice([1, 3, 100]))
        for message in messages:
            got[keys[message.body]].append(message.body)
        host.ack(messages)
        return len(messages)

    for _ in range(60):
        slow.steps = random.choice([0, 1, 3, 10])
        what = random.random()
        if what < 0.4:
            send_some()
        elif what < 0.7:
            receive_some()
        elif what < 0.85:
            host.now_ms += random.choice([1, 40, 999, span // 4])
            slow.turn()
        elif what < 0.9:
            if not slow.loading:
                host.flush()
        else:
            host.sync()
            slow.crash(random.choice([0, 500, span // 2]))
    host.now_ms += span
    slow.load_all()
    while receive_some() or slow.loading:
        slow.load_all()
    assert sum(map(len, got.values())) == len(due), "nothing is lost or comes twice"
    for key in "abc":
        assert got[key] == sorted(got[key], key=due.__getitem__), key


def test_more_than_fits_into_memory_waits_in_order(tmp_path: Any) -> None:
    """Any mix of sifting and taking gives everything back, sorted by due time."""
    random = Random(3)
    table = np.zeros(60_000, INDEX_ENTRY)
    table["key_hash"] = np.arange(len(table)) % 3
    table["deliver_at"] = np.sort(np.array([random.randrange(1 << 20) for _ in table]))
    numbers = iter(range(1 << 20))

    def rows_of(refs: Int64Array) -> tuple[Int64Array, RowArray]:
        return refs, table[refs]

    held = DeferredMessages(
        lambda: ScratchQueue(OsFileSystem(), str(tmp_path / f"{next(numbers)}")), rows_of
    )
    held._queue._memory_max = 1_000
    at = 0
    passed: list[int] = []
    freed: list[int] = []
    while at < len(table):
        upto = min(at + random.randint(1, 3_000), len(table))
        refs = np.arange(at, upto)
        due_ms = table["deliver_at"][refs].astype(np.int64)
        passed += held.sift(Entries(due_ms, refs, refs * 0), 1 << 10).refs.tolist()
        line_ms = int(due_ms[0]) if random.random() < 0.3 else 0
        freed += held.take(line_ms, 500).refs.tolist()
        at = upto
    while len(held):
        freed += held.take(None, 4_096).refs.tolist()
    due = table["deliver_at"]
    early = int(np.searchsorted(due, 1 << 10))
    keyed = table["key_hash"] != 0
    assert sorted(passed) == [r for r in range(len(table)) if not keyed[r] or r < early]
    assert freed == [r for r in range(early, len(table)) if keyed[r]]

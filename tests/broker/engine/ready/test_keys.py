"""Keys: one message of a key at a time, in order; messages of other keys do not wait."""

from __future__ import annotations

import random
import tracemalloc
from collections import defaultdict
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.ready.key_gate import KeyGate
from delaylog.broker.engine.ready.key_table import Keys, TakenKeys
from delaylog.broker.engine.ready.parking_lot import ParkedSpill
from delaylog.storage.columns import Mask
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import INDEX_ENTRY
from tests.effort import tries


def send(host: Any, *pairs: tuple[str, str], **how: Any) -> Any:
    """Messages as (key, body)."""
    keys, bodies = zip(*pairs, strict=True)
    return host.send([body.encode() for body in bodies], keys=keys, **how)


@pytest.fixture
def host(open_host: Any) -> Any:
    host = open_host()
    host.configure(backoff={"first_ms": 0})
    return host


def test_order_holds_through_retries(host: Any) -> None:
    send(host, ("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2"))
    first = host.receive()
    host.nack(first[:1], 500)
    host.ack(first[1:])
    assert host.bodies() == [b"b2"], "a waits for its retry"
    host.advance(499)
    assert host.bodies() == []
    host.advance(1)
    again = host.receive()
    assert [(m.body, m.attempts) for m in again] == [(b"a1", 2)]
    host.nack(again, 0)
    (third,) = host.receive()
    assert (third.body, third.attempts) == (b"a1", 3)
    host.ack([third])
    assert host.bodies() == [b"a2"]


def test_a_receive_by_id_leaves_the_order_as_it_is(host: Any) -> None:
    """A message that is chosen while its key is held stays in its place, however often."""
    ids = host.ids_of(send(host, ("a", "a1"), ("a", "a2"), ("a", "a3")))
    first = host.receive(1)
    for _ in range(3):
        assert host.receive(chosen=[ids[2]]) == []
    assert host.receive() == []
    assert host.receive(chosen=[ids[2]]) == []
    assert host.topic.default.gate.parked == 2
    host.ack(first)
    second = host.receive()
    assert [m.body for m in second] == [b"a2"]
    host.ack(second)
    assert [m.body for m in host.receive(chosen=[ids[2]])] == [b"a3"], "its key is free"
    assert host.receive() == []


def test_of_one_key_one_is_chosen(host: Any) -> None:
    ids = host.ids_of(send(host, ("a", "a1"), ("a", "a2"), ("b", "b1"), ("", "x")))
    got = host.receive(chosen=ids)
    assert [m.body for m in got] == [b"a1", b"b1", b"x"]
    host.ack(got)
    assert host.bodies(1, chosen=ids) == [b"a2"]


def test_a_receive_by_id_that_has_to_wait_is_woken(host: Any) -> None:
    """Its key, or its id, comes free before any other receive has met the message."""
    ids = host.ids_of(send(host, ("a", "a0"), ("a", "a1"), ids=["", "x"]))
    marked, place = host.engine.state.marks.newly_ready, host.place
    held = host.receive(1)
    assert host.receive(chosen=[ids[1]]) == []
    marked.clear()
    for _ in range(2):
        host.nack(held, 0)
        marked.clear()
        held = host.receive(1)
    host.ack(held)
    assert place in marked
    held = host.receive(chosen=[ids[1]])
    assert [m.body for m in held] == [b"a1"]
    host.send([b"next"], ids=["x"], merge="replace")
    assert host.receive(chosen=["x"]) == []
    marked.clear()
    host.ack(held)
    assert place in marked
    assert [m.body for m in host.receive(chosen=["x"])] == [b"next"]


@pytest.mark.parametrize("seed", range(tries(10)))
def test_spilled_messages_come_back_in_order(seed: int, tmp_path: Any) -> None:
    rng = random.Random(seed)
    made = iter(range(10_000))
    fs = OsFileSystem()
    spill = ParkedSpill(
        lambda: ScratchQueue(fs, str(tmp_path / f"{next(made)}.run")), slice_pairs=7, per_key_max=5
    )
    kept: dict[int, list[int]] = defaultdict(list)
    keys = [rng.getrandbits(64) | 1 for _ in range(6)]
    number = 0
    for _ in range(400):
        if rng.random() < 0.5:
            for _ in range(rng.randrange(1, 10)):
                key = rng.choice(keys)
                spill.push(key, number)
                kept[key].append(number)
                number += 1
        else:
            spill.want(rng.choice(keys))
        busy = set(rng.sample(keys, 2))
        for key, ref in spill.read(lambda keys, busy=busy: np.isin(keys, list(busy))):
            assert key not in busy
            assert kept[key].pop(0) == ref
        assert len(spill) == sum(len(refs) for refs in kept.values())
    for _ in range(10_000):
        if not len(spill):
            break
        for key in keys:
            spill.want(key)
        for key, ref in spill.read(lambda keys: np.zeros(len(keys), np.bool_)):
            assert kept[key].pop(0) == ref
    assert len(spill) == 0
    spill.clear()
    assert list(tmp_path.iterdir()) == []


class CountedLocks:
    """A gate that counts the keys about which it is asked."""

    def __init__(self, gate: KeyGate) -> None:
        self._gate = gate
        self.asked = 0

    def locked(self, keys: Keys) -> Mask:
        self.asked += len(keys)
        return self._gate.locked(keys)


def test_many_keys_on_disk_come_free_at_once(tmp_path: Path) -> None:
    """Each slice of the search asked about every key that is searched for."""
    made, count = iter(range(10_000)), 30_000
    fs = OsFileSystem()
    gate = KeyGate(lambda: ScratchQueue(fs, str(tmp_path / f"{next(made)}.run")))
    gate.parking.parked_max = 0
    keys = np.arange(1, count + 1, dtype=np.uint64)
    gate.lock(keys)
    lot = gate.parking.any
    for first in range(0, 6 * count, count):
        lot.park_many(keys, np.arange(first, first + count))
    gate.lock(np.array([1 << 40], np.uint64))
    gate.unlock(keys)
    locks = CountedLocks(gate)
    turns = got = 0
    while got < 50:
        found = lot.first(10, 1, TakenKeys(), locks)
        got += len(found)
        lot.take_first([key for key, _ in found])
        gate.lock(np.array([key for key, _ in found], np.uint64))
        turns += 1
    assert turns == 6
    assert locks.asked < 8 * count, "once about each key that is searched for, and about each pair"


def test_many_that_others_wait_for_end_in_one_call(tmp_path: Path) -> None:
    """Each end costs what waits for it, not what waits at all: 8,000 took ten seconds."""
    count = 8_000
    gate = KeyGate(lambda: ScratchQueue(OsFileSystem(), str(tmp_path / "run")))
    for k in range(1, count + 1):
        gate.wait_for(k << 20, k, k % 5_000)
    again = KeyGate(lambda: ScratchQueue(OsFileSystem(), str(tmp_path / "run")))
    again.restore(gate.snapshot())
    assert again.snapshot() == gate.snapshot()
    for each in (gate, again):
        begun = process_time()
        each.end(range(1, 3_001))
        assert each.predecessor(3_001) == 3_001
        assert each.predecessor(1) == 5_001, "the later one with that hash still lives"
        assert each.predecessor(2_999) == 7_999
        each.purge([count])
        assert (each.expecting, each.in_use) == (True, True)
        each.end([count])
        assert (each.expecting, each.in_use) == (False, False)
        assert process_time() - begun < 2


def test_keyed_retries_and_watched_keys_leave_nothing_behind(tmp_path: Path) -> None:
    """20,000 keys wait for retries at once, are named, and come free in one of three ways."""
    count = 20_000
    keys = np.arange(1, count + 1, dtype=np.uint64)
    origins = keys.astype(np.int64)
    rows = np.zeros(count, INDEX_ENTRY)
    rows["key_hash"], rows["origin"] = keys, -1
    gate = KeyGate(lambda: ScratchQueue(OsFileSystem(), str(tmp_path / "run")))

    def hold_and_release() -> None:
        gate.lock(keys)
        gate.unlock(keys)

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for end in (
            hold_and_release,
            lambda: gate.give_up(origins.tolist()),
            lambda: gate.purge([]),
        ):
            gate.lock(keys)
            gate.retry(keys, origins)
            assert len(gate.choose(rows, count)) == 0
            end()
            assert gate.take_watched()
            assert not gate.in_use
            assert tracemalloc.get_traced_memory()[0] - before < 10 * count
    finally:
        tracemalloc.stop()

"""A checkpoint holds leases and producers as of one log position, whatever happens meanwhile.

Method: random calls between slices of one object each, compared with packing all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from time import thread_time
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine import snapshot_list as chain
from delaylog.broker.engine.deliver.leases import LeaseTable
from delaylog.broker.engine.send.producers import (
    DIGEST_SIZE,
    KEEP_MS,
    ProducerTable,
    pack_answer,
)
from delaylog.storage.log.payloads import LeaseDecision
from tests.effort import tries

HOUR = 3_600_000


def remember(table: ProducerTable, name: str, sequence: int, position: int, now_ms: int) -> None:
    due = np.full(1, 10 * HOUR, np.int64)
    answer = pack_answer(due, np.array([10 << 32]), None, position, bytes(DIGEST_SIZE))
    table.remember(name, sequence, answer, now_ms)


def lend(table: LeaseTable, number: int, refs: list[int], deadline_ms: int) -> None:
    column = np.array(refs, np.int64)
    keys = np.array(refs, np.uint64) if number % 2 else None
    table.add(LeaseDecision(number, 1, number % 3, deadline_ms, column, 1), column, keys)


def at_once(table: Any) -> list[Any]:
    packed = table.snapshot()
    for _ in table.entries.work():
        pass
    return list(packed)


def producers(random: Random) -> tuple[ProducerTable, Callable[[], None]]:
    table = ProducerTable(producers_max=30, answer_bytes_max=60 * 500)
    last = [0]

    def change() -> None:
        last[0] += 1
        position, now_ms = last[0], last[0] * (KEEP_MS // 200)
        if random.random() < 0.01:
            table.jump_ahead(5)
        if random.random() < 0.01:
            table.set_back(now_ms)
        remember(table, f"p{random.randrange(40)}", position, position, now_ms)

    return table, change


def leases(random: Random) -> tuple[LeaseTable, Callable[[], None]]:
    table = LeaseTable()
    made = [0]

    def change() -> None:
        number = random.randint(max(1, made[0] - 30), made[0]) if made[0] else 0
        refs = [number * 8 + k for k in range(3)]
        what = random.choice(["lend", "lend", "some", "all", "extend", "rows", "drop", "shift"])
        if what == "lend":
            made[0] += 1
            lend(table, made[0], [made[0] * 8 + k for k in range(3)], 1_000 + made[0])
        elif what == "rows" and table.get(number):
            lend(table, number, refs[:2], 5_000 + made[0])
        elif what == "extend":
            table.extend(number, 9_000 + made[0])
        elif what == "drop" and random.random() < 0.02:
            table.drop(1, number % 3)
        elif what == "shift" and random.random() < 0.02:
            table.shift(7)
        elif (lease := table.get(number)) is not None and what in ("some", "all"):
            living = lease.refs[lease.open]
            table.close(number, living[:1] if what == "some" else living)

    return table, change


@pytest.mark.parametrize("make", [producers, leases])
@pytest.mark.parametrize("seed", range(tries(20)))
def test_a_snapshot_is_of_one_moment(
    make: Callable[[Random], tuple[Any, Callable[[], None]]],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    monkeypatch.setattr(chain, "SLICE_BYTES", 1)
    monkeypatch.setattr(chain, "BLOCK_BYTES", 300)
    random = Random(seed)
    table, change = make(random)
    for _ in range(100):
        change()
    changed = 0
    for _ in range(3):
        expected = at_once(table)
        packed = table.snapshot()
        for _ in table.entries.work():
            for _ in range(random.randrange(3)):
                change()
        found = list(packed)
        assert found == expected
        assert packed.count == len(found)
        changed += at_once(table) != expected
    assert changed
    again = type(table)()
    again.restore(at_once(table))
    assert at_once(again) == at_once(table)


def test_a_packing_that_was_given_up_leaves_nothing_behind() -> None:
    table, change = producers(Random(1))
    for _ in range(50):
        change()
    table.snapshot()
    work = table.entries.work()
    table.entries.give_up()
    for _ in range(50):
        change()
    assert list(work) == []
    assert len(at_once(table)) == len(table)


def test_no_slice_is_long() -> None:
    """Of 20,000 producers and as many leases; the median slice, as the machine has other work."""
    many, held = ProducerTable(), LeaseTable()
    for k in range(20_000):
        remember(many, f"p{k}", 1, k, 1_000)
        lend(held, k + 1, [k], HOUR)
    for table in (many, held):
        # A snapshot alone may meet the collector, or another thread of this process.
        first = []
        for _ in range(5):
            table.entries.give_up()
            began = thread_time()
            table.snapshot()
            first.append(thread_time() - began)
        took = []
        work, more = table.entries.work(), True
        while more:
            began = thread_time()
            more = next(work, "end") is None
            took.append(thread_time() - began)
        assert min(first) < 0.002
        assert sorted(took)[len(took) // 2] < 0.003, sorted(took)[-5:]
        assert len(took) > 50

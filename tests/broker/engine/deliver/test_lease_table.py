"""The lease table against a plain one, and what settled leases leave behind: nothing.

The plain model keeps the deadline of every open row. It says what ends when, and that the table is
woken for open rows only.
"""

from __future__ import annotations

import tracemalloc
from itertools import islice

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.engine.deliver.leases import BUCKET_MS, LeaseTable
from delaylog.storage.log.payloads import LeaseDecision
from tests.effort import tries

HOUR_MS = 3_600_000


def lend(table: LeaseTable, number: int, refs: list[int], deadline_ms: int) -> None:
    """A LEASE frame: a new lease, or new deadlines."""
    column = np.array(refs, np.int64)
    table.add(LeaseDecision(number, 1, 0, deadline_ms, column, 1), column)


def settle(table: LeaseTable, number: int, refs: list[int]) -> None:
    table.close(number, np.array(refs, np.int64))


def test_settled_leases_leave_nothing_behind_however_long_they_could_have_lasted() -> None:
    """Receive and ack of one message each under 12 h leases: no wake-up, no memory."""
    table = LeaseTable()
    tracemalloc.start()
    try:
        for number in range(1, 6_001):
            if number == 1_000:
                before, _ = tracemalloc.get_traced_memory()
            lend(table, number, [number], number * 20 + 12 * HOUR_MS)
            settle(table, number, [number])
            assert table.next_expiry_ms() is None
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 20_000


def test_extending_a_lease_leaves_nothing_behind() -> None:
    """A consumer that extends every 20 ms for minutes is filed once, under its last deadline."""
    table = LeaseTable()
    lend(table, 1, [5, 6], 1_000)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for k in range(10_000):
            lend(table, 1, [5, 6], 1_000 + k * 100)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 20_000
    assert table.next_expiry_ms() == 1_000 + 9_999 * 100


def test_a_dropped_group_wakes_nobody() -> None:
    """Its leases go with it."""
    table = LeaseTable()
    lend(table, 1, [5, 6], 1_000)
    lend(table, 2, [7], 2_000)
    table.drop(1, 0)
    assert table.next_expiry_ms() is None
    assert list(table.expired(10_000, 100)) == []


class _Model:
    """Open rows by lease with their deadlines."""

    def __init__(self) -> None:
        self.open: dict[int, dict[int, int]] = {}

    def settle(self, number: int, refs: list[int]) -> None:
        rows = self.open.get(number, {})
        for ref in refs:
            rows.pop(ref, None)
        if not rows:
            self.open.pop(number, None)

    def expire(self, now_ms: int) -> set[tuple[int, int]]:
        now_ms -= now_ms % BUCKET_MS
        over = {
            (number, ref)
            for number, rows in self.open.items()
            for ref, deadline_ms in rows.items()
            if deadline_ms <= now_ms
        }
        for number, ref in over:
            self.settle(number, [ref])
        return over


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["lend", "extend", "extend all", "settle", "wait", "shift", "restart"]),
        st.integers(0, 7),
        st.integers(0, 15),
        st.integers(0, 400),
    ),
    max_size=40,
)


@settings(max_examples=tries(300), deadline=None)
@given(_STEPS)
def test_the_table_ends_what_the_plain_model_ends(steps: list[tuple[str, int, int, int]]) -> None:
    """Any calls in any order: the same rows end at the same time, and never a wake too many.

    The next wake-up is never later than the first deadline, and belongs to a lease that is open.
    """
    table, model, now_ms, number = LeaseTable(), _Model(), 1_000_000, 0
    for op, which, mask, span_ms in steps:
        refs = [which * 4 + k for k in range(4) if mask >> k & 1]
        known = sorted(model.open)
        chosen = known[which % len(known)] if known else 0
        mine = [ref for ref in model.open.get(chosen, {}) if mask >> (ref & 3) & 1]
        if op == "lend" and refs:
            number += 1
            refs = [number * 8 + ref % 4 for ref in refs]
            lend(table, number, refs, now_ms + span_ms)
            model.open[number] = dict.fromkeys(refs, now_ms + span_ms)
        elif op == "extend" and mine:
            lend(table, chosen, mine, now_ms + span_ms)
            model.open[chosen].update(dict.fromkeys(mine, now_ms + span_ms))
        elif op == "extend all" and known:
            table.extend(chosen, now_ms + span_ms)
            model.open[chosen] = dict.fromkeys(model.open[chosen], now_ms + span_ms)
        elif op == "settle" and mine:
            settle(table, chosen, mine)
            model.settle(chosen, mine)
        elif op == "shift":
            table.shift(span_ms)
            for rows in model.open.values():
                rows.update({ref: at + span_ms for ref, at in rows.items()})
        elif op == "restart":
            saved = table.snapshot()
            for _ in table.entries.work():
                pass
            table = LeaseTable()
            table.restore(saved)
        elif op == "wait":
            now_ms += span_ms
            ended: set[tuple[int, int]] = set()
            found = True
            while found:
                found = False
                # One that stops early asks again, and misses none.
                for lease, rows in islice(table.expired(now_ms, 1 + mask % 3), 1 + mask % 2):
                    found = True
                    ended |= {(lease.number, int(ref)) for ref in lease.refs[rows]}
                    table.close(lease.number, lease.refs[rows])
            assert ended == model.expire(now_ms)
        assert len(table) == len(model.open)
        assert table.leased(1, 0) == sum(map(len, model.open.values()))
        first = min((at for rows in model.open.values() for at in rows.values()), default=None)
        wake_ms = table.next_expiry_ms()
        if first is None:
            assert wake_ms is None
        else:
            assert wake_ms is not None
            assert wake_ms <= -(-first // BUCKET_MS) * BUCKET_MS

"""Ended transactions that a checkpoint keeps: all of them in one go, so that must be short."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

from delaylog.broker.engine.transactions import table
from delaylog.broker.engine.transactions.table import TransactionTable


def ended(count: int) -> TransactionTable:
    found = TransactionTable()
    for k in range(1, count + 1):
        found.begin(k, f"transaction-{k}", ttl_ms=1_000, expires_ms=k + 1_000, leader_time_ms=k)
        found.end(k, "aborted", k)
    return found


def least_cost(act: Callable[[], Any]) -> float:
    took = []
    for _ in range(5):
        began = process_time()
        act()
        took.append(process_time() - began)
    return min(took)


def test_a_snapshot_of_as_many_as_are_kept_is_short() -> None:
    found = ended(table.ENDED_KEPT_MAX + 10)
    saved = found.snapshot(0)
    assert found.ended_count == len(saved["ended_ids"]) == table.ENDED_KEPT_MAX
    assert found.dropped == 10
    # It costs as much as so many short texts. A table in a linked order took thirty times as much.
    texts = least_cost(lambda: [str(k) for k in range(table.ENDED_KEPT_MAX)])
    assert least_cost(lambda: found.snapshot(0)) < 5 * texts

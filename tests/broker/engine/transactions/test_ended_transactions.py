"""Ended transactions that a checkpoint keeps: all of them in one go, so that must be short."""

from __future__ import annotations

from time import process_time

from delaylog.broker.engine.transactions import table
from delaylog.broker.engine.transactions.table import TransactionTable


def ended(count: int) -> TransactionTable:
    found = TransactionTable()
    for k in range(1, count + 1):
        found.begin(k, f"transaction-{k}", ttl_ms=1_000, expires_ms=k + 1_000, leader_time_ms=k)
        found.end(k, "aborted", k)
    return found


def test_a_snapshot_of_as_many_as_are_kept_is_short() -> None:
    found = ended(table.ENDED_KEPT_MAX + 10)
    took = []
    for _ in range(5):
        began = process_time()
        saved = found.snapshot(0)
        took.append(process_time() - began)
    assert found.ended_count == len(saved["ended_ids"]) == table.ENDED_KEPT_MAX
    assert found.dropped == 10
    # Quiet: 3 ms. A table in a linked order took 100 ms.
    assert min(took) < 0.02, took


def test_they_are_forgotten_oldest_first_and_come_back_from_a_checkpoint() -> None:
    found = ended(10)
    found.forget(5)
    assert [name for name, _ in found.newest_ended(3)] == [f"transaction-{k}" for k in (10, 9, 8)]
    again = TransactionTable()
    again.restore(found.snapshot(0))
    assert again.snapshot(0) == found.snapshot(0)
    assert again.ended("transaction-4") is None
    assert again.ended("transaction-5") == found.ended("transaction-5") is not None

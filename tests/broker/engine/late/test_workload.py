"""Busy and idle times of a group follow from its LEASE, SETTLE and MOVE frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.engine.late import causes
from delaylog.broker.engine.late.causes import Workload
from delaylog.broker.engine.late.timeline import Span
from delaylog.broker.engine.model import blank_entries
from delaylog.storage.log.payloads import LeaseDecision, SettleDecision
from tests.effort import tries

STEP_MS = 1_000


def leased(count: int, **how: Any) -> LeaseDecision:
    return LeaseDecision(1, 1, 1, 0, np.zeros(count, np.int64), 1, **how)


def settled(count: int, lease: int = 1) -> SettleDecision:
    return SettleDecision(1, 1, np.zeros(count, np.int64), blank_entries(1), lease)


@settings(max_examples=tries(200), deadline=None)
@given(before=st.integers(0, 3), changes=st.lists(st.integers(-3, 3), max_size=20))
def test_busy_while_messages_are_under_lease(before: int, changes: list[int]) -> None:
    """Against counts, of which the smallest is taken for none."""
    workload, count, counts = Workload(), before, [before]
    for at, wanted in enumerate(changes, 1):
        change = max(wanted, -count)
        if change > 0:
            workload.leased(leased(change), at * STEP_MS)
        elif change < 0:
            workload.ended(settled(-change), at * STEP_MS)
        count += change
        counts.append(count)
    end_ms = len(counts) * STEP_MS
    spans = workload.spans(0, end_ms, end_ms)
    for at, there in enumerate(counts):
        moment = at * STEP_MS + STEP_MS // 2
        found = [span.cause for span in spans if span.from_ms <= moment < (span.until_ms or 0)]
        assert found == ["slow_consumers" if there > min(counts) else "no_consumers"]


def test_who_asked_is_not_told_of_all_times() -> None:
    """Not after the timeline began, not before the log was read, and not of holes."""
    workload = Workload()
    workload.leased(leased(1), 5_000)
    workload.ended(settled(1), 6_000)
    spans = workload.spans(1_000, 9_000, 20_000, [(2_000, 3_000)])
    assert sorted(spans) == [
        Span(1_000, 2_000, "no_consumers"),
        Span(3_000, 5_000, "no_consumers"),
        Span(5_000, 6_000, "slow_consumers"),
        Span(6_000, 9_000, "no_consumers"),
    ]
    assert workload.spans(1_000, 0, 20_000) == [Span(5_000, 6_000, "slow_consumers")]


def test_what_changes_no_lease_is_not_counted() -> None:
    """Extended leases, and messages that ended without one."""
    workload = Workload()
    workload.leased(leased(1), 1_000)
    workload.leased(leased(1, extends=True), 2_000)
    workload.ended(settled(5, lease=0), 3_000)
    workload.ended(settled(1), 4_000)
    assert workload.spans(0, 0, 9_000) == [Span(1_000, 4_000, "slow_consumers")]


def test_a_forced_purge_ends_all_leases() -> None:
    workload = Workload()
    workload.leased(leased(3), 1_000)
    workload.purged(4_000)
    workload.leased(leased(1), 8_000)
    workload.ended(settled(1), 9_000)
    assert [span[:2] for span in workload.spans(0, 0, 20_000)] == [(1_000, 4_000), (8_000, 9_000)]


def test_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "BUSY_MAX", 10)
    workload = Workload()
    for at in range(100):
        workload.leased(leased(1), at * STEP_MS)
        workload.ended(settled(1), at * STEP_MS + 500)
    spans = workload.spans(0, 0, 0)
    assert len(spans) == 10
    assert spans[-1] == Span(9_000, 99_500, "slow_consumers")

"""Backfill: which instants it sends, when they are due, and that a replay has the same messages."""

from __future__ import annotations

import pytest

from delaylog.broker.engine.errors import BadRequestError, ConflictError
from delaylog.broker.engine.schedules.commands import drop_schedule, plan_backfill, send_backfill
from tests.broker.engine.host import HOUR
from tests.broker.engine.schedules.rig import ScheduleHost


def test_instants_of_the_range_at_the_rate(host: ScheduleHost) -> None:
    """From is in it, until is not; progress stays."""
    start = host.now_ms - 10 * HOUR + 60_000
    one = host.put("s", b"x", interval_ms=HOUR, start_ms=start)
    before = one.progress.copy()
    state = host.engine.state
    firings, rest = plan_backfill(
        state, one, from_ms=start, until_ms=start + 3 * HOUR, rate=2, now_ms=host.now_ms
    )
    assert rest is None
    assert [(each.instant_ms, each.due_ms) for each in firings] == [
        (start + k * HOUR, host.now_ms + 500 * k) for k in range(3)
    ]
    for _ in send_backfill(state, firings, host.now_ms):
        pass
    topic = state.by_number[one.topic]
    assert topic.pending == 3
    assert one.progress == before
    for _ in send_backfill(state, firings, host.now_ms):
        pass
    assert topic.pending == 3


def test_refused_ranges(host: ScheduleHost) -> None:
    one = host.put("s", b"x", interval_ms=HOUR)
    state, now_ms = host.engine.state, host.now_ms
    for from_ms, until_ms, field in ((0, now_ms + 1, "until_ms"), (5, 5, "from_ms")):
        with pytest.raises(BadRequestError) as refused:
            plan_backfill(state, one, from_ms=from_ms, until_ms=until_ms, rate=None, now_ms=now_ms)
        assert refused.value.field == field


def test_a_schedule_that_is_dropped_meanwhile(host: ScheduleHost) -> None:
    """The frames before that stay."""
    start = host.now_ms - 200 * HOUR
    one = host.put("s", b"x", interval_ms=HOUR, start_ms=start)
    state = host.engine.state
    firings, _ = plan_backfill(
        state, one, from_ms=start, until_ms=host.now_ms, rate=None, now_ms=host.now_ms
    )
    steps = send_backfill(state, firings, host.now_ms)
    next(steps)
    drop_schedule(state, one, host.now_ms)
    with pytest.raises(ConflictError, match="changed meanwhile; 64 messages were sent"):
        next(steps)

"""The host's part of the timeline: starts that replay, stalls of the loop, slow commits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from delaylog.broker.engine.late.timeline import Span, Timeline
from delaylog.broker.host.watch.lateness import note_started, watch_causes

KEY, PLACE = ("default", "t", "default"), (1, 1)


def node(started_ms: int, now_ms: int) -> Any:
    """What `watch_causes` uses of a node."""
    timeline = Timeline(started_ms)
    timeline.begin_asking(KEY, PLACE, 0, started_ms)
    return SimpleNamespace(
        engine=SimpleNamespace(state=SimpleNamespace(timeline=timeline), started_ms=started_ms),
        clock=SimpleNamespace(now_ms=lambda: now_ms),
        loop_lag=SimpleNamespace(),
        log_commits=SimpleNamespace(),
    )


def spans(node: Any) -> list[Span]:
    return node.engine.state.timeline.spans(KEY, PLACE, 0, 9_999)


def test_a_start_that_replays() -> None:
    """From the time that the engine read until it serves; again when it begins to lead."""
    one = node(1_000, 4_000)
    watch_causes(one)
    assert spans(one) == [Span(1_000, 4_000, "catching_up")]
    one.engine.started_ms, one.clock.now_ms = 6_000, lambda: 6_500
    note_started(one)
    assert spans(one)[1:] == [Span(6_000, 6_500, "catching_up")]


def test_what_only_the_host_sees() -> None:
    one = node(4_000, 4_000)
    watch_causes(one)
    one.clock.now_ms = lambda: 7_000
    one.loop_lag.on_stall(0.4)
    one.log_commits.on_slow(1.25)
    assert spans(one) == [Span(6_600, 7_000, "stall"), Span(5_750, 7_000, "slow_disk")]

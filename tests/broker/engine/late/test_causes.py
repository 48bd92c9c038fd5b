"""A wait is covered by its parts without gaps, each with the first cause that holds there; busy and
idle times of a group follow from its LEASE, SETTLE and MOVE frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.engine.late import causes as module
from delaylog.broker.engine.late.causes import PARTS_MAX, Held, Wait, Workload, explain
from delaylog.broker.engine.late.timeline import CAUSES, Span
from delaylog.broker.engine.model import blank_entries
from delaylog.storage.log.payloads import LeaseDecision, SettleDecision
from tests.effort import tries

STEP = 40
TIMES = st.integers(0, 12).map(lambda steps: steps * STEP)
SPANS = st.lists(
    st.builds(
        lambda first, size, cause: Span(first, None if size is None else first + size, cause),
        TIMES,
        st.none() | st.integers(1, 8).map(lambda steps: steps * STEP),
        st.sampled_from(CAUSES[:-1]),
    ),
    max_size=6,
)
HELD = st.lists(st.builds(lambda a, b, o: Held(a, a + b, o), TIMES, TIMES, st.integers(1, 2)))


def parts_of(*args: Any) -> list[Wait]:
    """What `explain` returns."""
    return counted(*args)[0]


def counted(*args: Any) -> tuple[list[Wait], int]:
    """The same, and the number of slices that it took."""
    work, slices = explain(*args), 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, slices
        slices += 1


def plain(moment: int, spans: list[Span], held: list[Held]) -> str:
    """The cause at a moment, looked up one by one."""
    found = [s.cause for s in spans if s.from_ms <= moment < (s.until_ms or 10**9)]
    found += ["key" for h in held if h.until_ms is not None and h.from_ms <= moment < h.until_ms]
    return min(found, key=CAUSES.index, default="unknown")


@settings(max_examples=tries(300), deadline=None)
@given(spans=SPANS, held=HELD, first=TIMES, size=TIMES)
def test_each_moment_has_its_cause(
    spans: list[Span], held: list[Held], first: int, size: int
) -> None:
    """Unknown moments next to known ones may have the cause of these, as they are short."""
    parts = parts_of(first, first + size, spans, held)
    ends = [part.until_ms for part in parts]
    assert [part.from_ms for part in parts] == ([first, *ends[:-1]] if size else [])
    assert not parts or ends[-1] == first + size
    for moment in range(first + STEP // 2, first + size, STEP):
        (cause,) = [p.cause for p in parts if p.from_ms <= moment < p.until_ms]
        right = plain(moment, spans, held)
        near = {plain(moment + k * 10, spans, held) for k in range(-10, 11)}
        assert cause == right or (right == "unknown" and cause in near)


def test_what_no_span_covers_is_unknown() -> None:
    """Without evidence nothing is blamed on consumers."""
    assert parts_of(0, 200, [Span(100, 200, "paused")]) == [
        Wait(0, 100, "unknown"),
        Wait(100, 200, "paused"),
    ]
    assert parts_of(0, 200, [Span(99, 200, "paused")]) == [Wait(0, 200, "paused")]
    assert parts_of(0, 90, []) == [Wait(0, 90, "unknown")]


def test_the_holder_of_a_key_is_named() -> None:
    parts = parts_of(0, 100, [Span(60, 100, "paused")], [Held(-5, 80, 7)])
    assert parts == [Wait(0, 60, "key", 7), Wait(60, 100, "paused")]


def test_crumbs_count_to_their_neighbours() -> None:
    spans = [Span(0, 50, "paused"), Span(53, 100, "down")]
    assert parts_of(0, 100, spans) == [Wait(0, 53, "paused"), Wait(53, 100, "down")]


@pytest.mark.parametrize("count", [2_000, 20_000])
def test_many_holders(count: int) -> None:
    """One holder after another: few parts, made in slices whose work does not grow with them."""
    held = [Held(at * 1_000, at * 1_000 + 1_000, at + 1) for at in range(count)]
    parts, slices = counted(0, count * 1_000, [], held)
    assert slices >= count // 256
    assert len(parts) <= 2 * PARTS_MAX
    assert (parts[0].from_ms, parts[-1].until_ms) == (0, count * 1_000)
    assert {part.cause for part in parts} == {"key"}


def test_a_long_holder_among_short_ones_keeps_its_name() -> None:
    """Short ones that are joined have none, unless one of them held most of the time."""
    held = [Held(at, at + 1, 5) for at in range(0, 100, 2)]
    held += [Held(at, at + 1, 6) for at in range(1, 100, 2)]
    held.append(Held(100, 10_000, 7))
    assert parts_of(0, 10_000, [], held) == [Wait(0, 100, "key", 0), Wait(100, 10_000, "key", 7)]
    crumb = [Held(0, 8, 1), Held(8, 10, 2), Held(10, 10_000, 7)]
    assert parts_of(0, 10_000, [], crumb) == [Wait(0, 10_000, "key", 7)]


# -------------------------------------------------- when consumers were busy

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


def test_busy_times_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_MAX", 10)
    workload = Workload()
    for at in range(100):
        workload.leased(leased(1), at * STEP_MS)
        workload.ended(settled(1), at * STEP_MS + 500)
    spans = workload.spans(0, 0, 0)
    assert len(spans) == 10
    assert spans[-1] == Span(9_000, 99_500, "slow_consumers")

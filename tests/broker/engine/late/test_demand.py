"""What the calls of a group leave waiting, against a model that knows each call."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.engine.late import demand as module
from delaylog.broker.engine.late.demand import EVERYTHING, IDS, Demand, Masks

A, B, BOTH = (1,), (2,), (1, 2)
BUSY, USED, AWAY = 7, 5, 15


@pytest.fixture(scope="module", autouse=True)
def small() -> Any:
    """Times that a model can walk through."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "USED_MS", USED)
        patch.setattr(module, "AWAY_MS", AWAY)
        patch.setattr(module, "GAPS_MAX", 100)
        # The model knows each call.
        patch.setattr(module, "SHORT_MS", -1)
        yield


class Call(NamedTuple):
    """A call that asked from a time until another."""

    masks: Masks
    from_ms: int
    until_ms: int


def busy_ms(now_ms: int) -> int:
    """When messages last left their leases: at each multiple of `BUSY`."""
    return now_ms - now_ms % BUSY


def played(calls: list[Call], now_ms: int) -> Demand | None:
    """The demand of these calls, made when the first one did not ask for everything."""
    events = [(call.from_ms, 1, call.masks) for call in calls]
    events += [(call.until_ms, 2, call.masks) for call in calls]
    demand, open_, asked_ms = None, 0, 0
    for at_ms, what, masks in sorted(events):
        if at_ms > now_ms:
            break
        if what == 1 and demand is None and masks != EVERYTHING:
            demand = Demand(at_ms, open_, asked_ms)
        if demand is not None and what == 1:
            demand.begin(masks, busy_ms(at_ms), at_ms, 0)
        elif demand is not None:
            demand.end(masks, at_ms)
        open_ += 1 if what == 1 else -1
        asked_ms = 0 if open_ else at_ms
    return demand


class Seen(NamedTuple):
    """What is known of calls with one filter at a moment."""

    ever: bool
    asks: bool
    ago_ms: int
    busy: bool


def seen(calls: list[Call], masks: Masks, at_ms: int, now_ms: int) -> Seen:
    mine = [call for call in calls if call.masks == masks and call.from_ms <= at_ms]
    later = [call.from_ms for call in calls if call.masks == masks and call.from_ms > at_ms]
    asks = any(at_ms < call.until_ms for call in mine)
    ago_ms = at_ms - max((call.until_ms for call in mine if call.until_ms <= at_ms), default=at_ms)
    return Seen(bool(mine), asks, ago_ms, at_ms < busy_ms(min(later, default=now_ms)))


def cause(calls: list[Call], tag_mask: int, at_ms: int, now_ms: int) -> set[int]:
    """Which of the three lists of an absence have a moment."""
    ours, others = [], []
    for masks in {call.masks for call in calls}:
        takes = any(tag_mask & mask == mask for mask in masks)
        (ours if takes else others).append(seen(calls, masks, at_ms, now_ms))
    out = set()
    if all(not one.ever or (not one.asks and one.ago_ms >= AWAY) for one in ours) and any(
        one.ever and (one.asks or one.ago_ms < USED) for one in others
    ):
        out.add(0)
    if any(one.ever for one in ours) and not any(one.asks for one in ours):
        out.add(1 if any(one.ever and one.busy for one in ours) else 2)
    return out


CALLS = st.lists(
    st.builds(
        lambda masks, from_ms, size: Call(masks, from_ms, from_ms + size),
        st.sampled_from([EVERYTHING, IDS, A, B, BOTH]),
        st.integers(1, 60),
        st.integers(0, 12),
    ),
    max_size=8,
)


@given(CALLS, st.sampled_from([0, 1, 2, 3]), st.integers(20, 70))
def test_against_a_model(calls: list[Call], tag_mask: int, now_ms: int) -> None:
    demand = played(calls, now_ms)
    if demand is None:
        return
    # Calls of the future are not known, and those that last end later.
    known = [call for call in calls if call.from_ms <= now_ms]
    absence = demand.absence(tag_mask, busy_ms(now_ms), now_ms)
    for at_ms in range(demand.since_ms, now_ms):
        found = {
            number
            for number, times in enumerate(absence)
            if any(from_ms <= at_ms < until_ms for from_ms, until_ms in times)
        }
        assert found == cause(known, tag_mask, at_ms, now_ms), (at_ms, absence)
    for times in absence:
        assert all(demand.since_ms <= from_ms < until_ms for from_ms, until_ms in times)


def test_a_call_that_began_before_counts_as_one_for_everything() -> None:
    """It may have asked for any tags, so no message is left out until it has ended for long."""
    demand = Demand(10, 1, 0)
    demand.begin(A, busy_ms(10), 10, 0)
    assert demand.absence(2, busy_ms(20), 20).filtered_out == []
    demand.end(B, 20)
    assert demand.absence(2, busy_ms(50), 50).filtered_out == [(20 + AWAY, 50)]
    assert demand.recent(30) == {A, EVERYTHING}
    assert demand.recent(50) == {A}


def test_consumers_that_are_gone_leave_nothing_out() -> None:
    demand = Demand(10, 0, 0)
    demand.begin(A, busy_ms(10), 10, 0)
    demand.end(A, 12)
    assert demand.recent(12 + USED) == {A}
    assert demand.recent(13 + USED) == set()
    assert demand.absence(2, busy_ms(50), 50).filtered_out == [(10, 12 + USED)]


@pytest.mark.parametrize("busy", [True, False])
def test_gaps_around_short_calls_are_one(monkeypatch: pytest.MonkeyPatch, busy: bool) -> None:
    """Up to `USED_MS`: who asked that recently is there. Others are kept as they were."""
    monkeypatch.setattr(module, "SHORT_MS", 1)
    demand = Demand(1, 0, 0)
    for now_ms in (2, 4, 6, 8):
        demand.begin(A, now_ms if busy else 0, now_ms, 0)
        demand.end(A, now_ms)
    gaps = demand._askers[A].gaps
    assert [(gap.from_ms, gap.until_ms) for gap in gaps] == [(2, 6), (6, 8)]
    assert [gap.busy_ms for gap in gaps] == ([6, 8] if busy else [2, 6])
    demand.begin(A, 0 if busy else 10, 10, 0)
    assert len(gaps) == 3, "messages were under lease in the one and not in the other"


def test_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Purpose: memory stays small whatever consumers ask for, and what was forgotten is not denied.
    Method: more filters than are remembered, with calls that have ended and that last."""
    monkeypatch.setattr(module, "MASKS_MAX", 4)
    monkeypatch.setattr(module, "GAPS_MAX", 2)
    demand = Demand(1, 0, 0)
    for number in range(100):
        demand.begin((1 << number % 8,), busy_ms(number), number, 0)
        demand.end((1 << number % 8,), number)
    assert len(demand._askers) == 4
    # A consumer of a forgotten filter may still be busy.
    assert demand.recent(100) == set()
    assert demand.absence(256, busy_ms(100), 100).filtered_out == []
    assert demand.absence(256, busy_ms(200), 200).filtered_out == []
    for number in range(8):
        demand.begin((1 << number,), busy_ms(200), 200, 0)
        demand.begin((1 << number,), busy_ms(200), 200, 0)
    assert len(demand._askers) == 5, "with one for everything"
    assert all(len(asker.gaps) <= 2 for asker in demand._askers.values())
    assert demand.absence(256, busy_ms(250), 250).filtered_out == []
    for number in range(16):
        demand.end((1 << number // 2,), 250)
    assert not any(asker.calls for asker in demand._askers.values())

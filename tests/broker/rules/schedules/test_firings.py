"""What becomes of a due instant.

Catch-up: the policies against a plain list of the instants of an outage. Jitter: stable, spread,
and never past the next instant. Overlap: the table of decisions.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.rules.schedules import firings
from delaylog.broker.rules.schedules.firings import (
    Action,
    CatchUp,
    check_window,
    count_instants,
    decide_overlap,
    due_ms,
    first_after_outage,
)
from delaylog.broker.rules.schedules.instants import next_instant
from delaylog.broker.rules.schedules.timing import Timing
from delaylog.contract.calls.schedules import OVERLAPS
from delaylog.contract.members import MemberError
from tests.broker.rules.schedules.walk import walk
from tests.effort import tries

HOUR = 3_600_000
DAY = 24 * HOUR
TIMINGS = [
    Timing(interval_ms=HOUR, start_ms=0),
    Timing(interval_ms=7_000, start_ms=0),
    Timing(cron="0 9 * * 1-5", zone="Europe/Berlin"),
    Timing(cron="*/10 8-11 * * *", zone="America/New_York"),
    Timing(cron="0 0 1 * *", zone="Pacific/Apia"),
    Timing(rrule="FREQ=DAILY;BYHOUR=3,4;BYMINUTE=0,7", start_ms=0),
]
NOW = 1_800_000_000_000


def missed_by(timing: Timing, pending: int, now: int) -> list[int]:
    """All instants of an outage."""
    return list(walk(timing, pending - 1, now))


def model(missed: list[int], now: int, rule: CatchUp) -> list[int]:
    """The rule as it is documented."""
    late = [at for at in missed if at >= now - rule.window_ms]
    return {"none": [], "latest": late[-1:], "all": late}[rule.policy]


def fired_by(timing: Timing, pending: int, now: int, rule: CatchUp) -> list[int]:
    """What fires, by one instant after the other."""
    out: list[int] = []
    at: int | None = pending
    while at is not None and at < now:
        at = first_after_outage(timing, at, now, rule)
        if at is not None:
            out.append(at)
            at = next_instant(timing, at)
    return out


@settings(max_examples=tries(150), deadline=None)
@given(
    st.sampled_from(TIMINGS),
    st.sampled_from(["none", "latest", "all"]),
    st.integers(0, 3 * DAY),
    st.integers(0, 2 * DAY),
)
def test_instants_are_the_models(timing: Timing, policy: str, outage: int, window: int) -> None:
    """Any outage and window; what does not fire is counted."""
    pending = next_instant(timing, NOW - outage)
    assert pending is not None
    if timing.interval_ms == 7_000:
        pending = max(pending, NOW - HOUR - HOUR % 7_000)
        pending -= pending % 7_000
    rule, missed = CatchUp(policy, window), missed_by(timing, pending, NOW)
    assert fired_by(timing, pending, NOW, rule) == model(missed, NOW, rule)
    if missed:
        assert count_instants(timing, pending, NOW) == len(missed)


def test_the_newest_instant_of_a_long_outage_costs_few_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """40 days of a schedule that fires each second: `latest` does not walk over them."""
    asked = []

    def counted(*args: object) -> int | None:
        asked.append(args)
        return next_instant(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(firings, "next_instant", counted)
    busy = Timing(cron="* * 2 * * *", zone="Europe/Berlin")
    rule = CatchUp("latest", 40 * DAY)
    pending = next_instant(busy, NOW - 40 * DAY)
    assert pending is not None
    newest = first_after_outage(busy, pending, NOW, rule)
    assert newest is not None
    following = next_instant(busy, newest)
    assert following is not None
    assert following > NOW
    assert len(asked) < 80


@pytest.mark.parametrize("fold", ["first", "second", "both"])
@pytest.mark.parametrize(
    "cron", ["*/10 * * * * *", "30 2 * * *", "15,45 1-3 * * *", "0 * * * *", "7 30 2 28-31 3,10 7"]
)
@pytest.mark.parametrize("month", [3, 10])
def test_instants_are_counted_across_clock_changes(cron: str, fold: str, month: int) -> None:
    """Days around a change, to the second; an outage may begin and end in a repeated hour."""
    timing = Timing(cron=cron, zone="Europe/Berlin", fold=fold)
    change = 1_806_195_600_000 if month == 3 else 1_824_944_400_000
    for begin, end in ((-30, 40), (-1, 1), (0, 50), (-50, 0)):
        first = next_instant(timing, change + begin * HOUR + 1_234)
        assert first is not None
        until = max(change + end * HOUR + 1, first)
        if cron.startswith("*/10") and end > 1:
            until = first + 3 * HOUR
        assert count_instants(timing, first, until) == len(missed_by(timing, first, until))


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Africa/Casablanca", "Australia/Lord_Howe"])
@pytest.mark.parametrize("days", [27, 28, 29, 400, 801])
def test_instants_of_months_are_counted(zone: str, days: int) -> None:
    """Casablanca's clocks go back for a month; Lord Howe's by half an hour."""
    for cron in ("0 5 * * *", "30 2,14 28-31 * *", "15 */7 * 3,10 2", "0 12 LW * *"):
        timing = Timing(cron=cron, zone=zone)
        first = next_instant(timing, NOW)
        assert first is not None
        until = first + days * DAY + 1
        assert count_instants(timing, first, until) == len(missed_by(timing, first, until))


@pytest.mark.parametrize(
    ("timing", "window"),
    [
        (Timing(interval_ms=1, start_ms=0), 100_000),
        (Timing(interval_ms=864, start_ms=0), DAY),
        (Timing(cron="* * * * * *"), DAY),
        (Timing(cron="* * * * *"), 69 * DAY),
        (Timing(rrule="FREQ=DAILY;BYHOUR=3,4;BYMINUTE=0,7", start_ms=0), 25_000 * DAY),
    ],
)
def test_a_window_has_at_most_so_many_instants(timing: Timing, window: int) -> None:
    """The widest one of each timing; a wider one is refused for `all`, unless `count` is less."""
    check_window(timing, CatchUp("all", window))
    wider = CatchUp("all", window + DAY)
    with pytest.raises(MemberError, match="fires at most 100000") as error:
        check_window(timing, wider)
    assert error.value.field == "catch_up_window_ms"
    check_window(replace(timing, count=100_000), wider)
    check_window(timing, replace(wider, policy="latest"))


@given(
    st.binary(max_size=40),
    st.integers(0, 2**50),
    st.none() | st.integers(1, 10**9),
    st.integers(0, 10**9),
)
def test_a_firing_is_due_before_the_next_instant(
    schedule: bytes, instant: int, step: int | None, jitter: int
) -> None:
    """In [instant, instant + jitter], before the next instant, and the same each time."""
    following = None if step is None else instant + step
    due = due_ms(schedule, instant, following, jitter)
    assert instant <= due <= instant + jitter
    assert following is None or due < following
    assert due == due_ms(schedule, instant, following, jitter)


DUES = [11_862, 371, 16_305]


def test_equal_schedules_spread() -> None:
    """10,000 schedules of one instant over a minute; a cluster shares these values."""
    dues = [due_ms(b"s%d" % n, 0, None, 59_999) for n in range(10_000)]
    seconds = [sum(1 for due in dues if due // 1_000 == s) for s in range(60)]
    assert min(seconds) > 110
    assert max(seconds) < 230
    assert dues[:3] == DUES


TABLE = {
    "allow": (Action.FIRE, Action.FIRE, Action.FIRE),
    "skip": (Action.FIRE, Action.SKIP, Action.SKIP),
    "buffer_one": (Action.FIRE, Action.BUFFER, Action.SKIP),
    "replace": (Action.FIRE, Action.REPLACE, Action.REPLACE),
}
"""Without an open message, with one, and with one and a buffered firing."""


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_decisions(overlap: str) -> None:
    """Each policy in each situation."""
    found = tuple(
        decide_overlap(overlap, open_last=open_last, buffered=buffered)
        for open_last, buffered in ((False, False), (True, False), (True, True))
    )
    assert found == TABLE[overlap]

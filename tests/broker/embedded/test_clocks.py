"""Clocks: what a manual one says, how it is moved, and what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from delaylog.broker.embedded import ManualClock
from delaylog.broker.embedded.clocks import START_MS


class Sleeper:
    """Asks the clock to stop at some moments, and notes where it stood."""

    def __init__(self, clock: ManualClock, *stops_ms: int) -> None:
        self.clock = clock
        self.stops = sorted(stops_ms)
        self.stood: list[int] = []

    def next_stop_ms(self) -> int | None:
        return self.stops[0] if self.stops else None

    def clock_moved(self) -> None:
        now_ms = self.clock.now_ms()
        self.stops = [stop for stop in self.stops if stop > now_ms]
        self.stood.append(now_ms)


def test_it_stands_until_it_is_moved() -> None:
    clock = ManualClock()
    assert clock.now_ms() == clock.now_ms() == START_MS
    assert clock.now == datetime(2026, 1, 1, tzinfo=UTC)
    assert (clock.ahead_ms, clock.accept(), clock.wall_ms) == (0, 0, START_MS)


def test_it_begins_at_a_moment_of_any_time_zone() -> None:
    start = datetime(2030, 5, 1, 12, 0, 0, 5_000, tzinfo=timezone(timedelta(hours=2)))
    clock = ManualClock(start)
    assert clock.now == start
    assert clock.now_ms() % 1000 == 5
    assert ManualClock(17).now_ms() == 17


def test_all_that_is_given_passes_together() -> None:
    clock = ManualClock(0)
    passed = clock.advance(timedelta(days=1), hours=1, minutes=1, seconds=1, ms=1)
    assert passed == clock.now_ms() == 86_400_000 + 3_600_000 + 60_000 + 1_000 + 1
    assert clock.advance(days=0.5) == passed + 43_200_000
    assert clock.advance() == passed + 43_200_000


def test_it_stops_wherever_a_broker_asks_it_to() -> None:
    """Two brokers on one clock: each sees the moments of both, in order, and the end."""
    clock = ManualClock(0)
    one, other = Sleeper(clock, 10, 500), Sleeper(clock, 30, 1_000_000)
    clock.attach(one)
    clock.attach(other)
    clock.advance(ms=1_000)
    assert one.stood == other.stood == [0, 10, 30, 500, 1_000]
    clock.detach(other)
    clock.set(datetime.fromtimestamp(2, UTC))
    assert one.stood[-1] == 2_000
    assert other.stood[-1] == 1_000


def test_a_folder_that_is_ahead_takes_it_along() -> None:
    clock = ManualClock(1_000)
    clock.hold_from(500)
    assert clock.now_ms() == 1_000
    clock.hold_from(5_000)
    assert clock.now_ms() == 5_000


@pytest.mark.parametrize(
    ("move", "why"),
    [
        (lambda clock: clock.advance(ms=-1), "does not run backwards"),
        (lambda clock: clock.set(4_999), "does not run backwards"),
        (lambda clock: clock.advance(timedelta(microseconds=1)), "whole milliseconds"),
        (lambda clock: clock.advance(days=3_000_000), "in 2079"),
        (lambda clock: clock.set(datetime(2085, 1, 1, tzinfo=UTC)), "a time is from 0 to 3458"),
        (lambda clock: clock.set(datetime(2030, 1, 1)), "time zone"),  # noqa: DTZ001
        (lambda clock: clock.set(-1), "a time is from 0"),
    ],
)
def test_a_move_that_cannot_be_is_refused_and_nothing_passes(move, why) -> None:
    clock = ManualClock(5_000)
    with pytest.raises(ValueError, match=why):
        move(clock)
    assert clock.now_ms() == 5_000


@pytest.mark.parametrize("moment", ["now", 1.5, True, None])
def test_a_moment_is_a_number_or_a_datetime(moment: object) -> None:
    with pytest.raises(TypeError, match="a time is an integer of ms"):
        ManualClock(moment)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "move",
    [
        lambda clock: clock.advance("1d"),
        lambda clock: clock.advance(86_400_000),
        lambda clock: clock.advance(days="1"),
        lambda clock: clock.advance(ms=True),
        lambda clock: clock.advance(hours=timedelta(hours=1)),
    ],
)
def test_what_is_no_time_is_refused_with_what_is_taken(move) -> None:
    clock = ManualClock(5_000)
    with pytest.raises(TypeError, match="takes a timedelta, or numbers: days=, hours="):
        move(clock)
    assert clock.now_ms() == 5_000


def test_a_folder_that_is_ahead_takes_the_other_brokers_along() -> None:
    clock = ManualClock(0)
    one = Sleeper(clock, 10, 500, 9_000)
    clock.attach(one)
    clock.hold_from(1_000)
    assert one.stood == [0, 10, 500, 1_000]
    clock.advance(ms=8_500)
    assert one.stood[4:] == [9_000, 9_500]


def test_who_comes_after_a_move_does_what_has_become_due() -> None:
    clock = ManualClock(0)
    late = Sleeper(clock, 10)
    clock.advance(ms=20)
    clock.attach(late)
    assert late.stood == [20]
    clock.advance(ms=1)


def test_one_that_fails_to_follow_is_not_moved_along() -> None:
    class Broken(Sleeper):
        def clock_moved(self) -> None:
            raise LookupError("a row")

    clock = ManualClock(0)
    good = Sleeper(clock)
    clock.attach(good)
    with pytest.raises(LookupError):
        clock.attach(Broken(clock, 5))
    clock.advance(ms=10)
    assert good.stood == [0, 10]

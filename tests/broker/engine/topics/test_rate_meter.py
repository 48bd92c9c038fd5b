"""The rate of a counter: its mean growth over ten to twenty seconds, told at any moment."""

from __future__ import annotations

from random import Random

import pytest

from delaylog.broker.engine.topics.rates import WINDOW_MS, RateMeter
from tests.effort import tries


def test_steady_growth_is_told_from_the_first_second_on() -> None:
    meter, value = RateMeter(), 0
    for now in range(0, 60_000, 100):
        meter.look(now, value)
        value += 7
        if now >= 1_000:
            assert meter.per_second(now, value) == pytest.approx(70, rel=0.11)


def test_a_first_burst_is_no_leap() -> None:
    meter = RateMeter()
    meter.look(5_000, 100)
    assert meter.per_second(5_000, 150) == 50
    assert meter.per_second(7_000, 150) == 25


def test_who_stands_still_goes_to_zero() -> None:
    meter = RateMeter()
    meter.look(0, 0)
    assert meter.per_second(2_000, 1_000) == 500
    assert meter.per_second(2_000 + WINDOW_MS, 1_000) == 0


def test_after_a_pause_only_what_is_new_counts() -> None:
    meter = RateMeter()
    meter.look(0, 0)
    meter.look(3_600_000, 1_000)
    assert meter.per_second(3_600_000, 1_100) == 10


def test_a_clock_that_is_set_back_begins_anew() -> None:
    meter = RateMeter()
    meter.look(1_000_000, 0)
    meter.look(5_000, 500)
    assert meter.per_second(6_000, 510) == 10


@pytest.mark.parametrize("seed", range(tries(20)))
def test_the_mean_lies_between_those_of_one_and_two_windows(seed: int) -> None:
    """Whoever asks, and whenever: the window is one that the growth itself knows."""
    random, meter = Random(seed), RateMeter()
    grown: list[tuple[int, int]] = []
    now = value = 0
    for _ in range(400):
        now += random.choice([1, 50, 900, 4_000, 12_000, 30_000])
        meter.look(now, value)
        by = random.randint(0, 20)
        grown.append((now, by))
        value += by
        told = meter.per_second(now, value) if random.random() < 0.3 else None
        if told is not None and now > 3 * WINDOW_MS:
            least = sum(n for at, n in grown if at >= now - WINDOW_MS)
            most = sum(n for at, n in grown if at >= now - 3 * WINDOW_MS)
            assert told <= most / (WINDOW_MS / 1_000) + 1e-9
            assert told >= least / (3 * WINDOW_MS / 1_000) - 1e-9 or least == 0

"""The pause between releases follows from what a release costs. A clock by hand shows each rule."""

import pytest

from delaylog.broker.host.release_timer import LONGEST_S, SHARE, ReleasePace

SHORTEST_S = 0.002


class HandClock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Releases:
    """A pace, and releases of a chosen cost, each as soon as it may begin."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.pace = ReleasePace(SHORTEST_S, self.clock)

    def release(self, cost_s: float) -> float:
        """One release; returns the pause that follows it."""
        began_s = self.clock.now_s
        self.clock.now_s += cost_s
        self.pace.released(began_s)
        pause_s = self.pace.left_s
        self.clock.now_s += pause_s
        return pause_s

    def settle(self, cost_s: float) -> float:
        """The pause once every recent release had this cost."""
        return [self.release(cost_s) for _ in range(200)][-1]


@pytest.fixture
def releases() -> Releases:
    return Releases()


def test_the_first_release_does_not_wait(releases: Releases) -> None:
    assert releases.pace.left_s <= 0


def test_cheap_releases_wait_for_the_shortest_pause(releases: Releases) -> None:
    assert releases.settle(0.000_1) == pytest.approx(SHORTEST_S)


def test_expensive_releases_take_a_tenth_of_the_time(releases: Releases) -> None:
    assert releases.settle(0.000_5) == pytest.approx(0.000_5 / SHARE)


def test_no_pause_is_longer_than_the_longest(releases: Releases) -> None:
    assert releases.settle(0.05) == pytest.approx(LONGEST_S)


def test_one_slow_release_does_not_slow_down_the_next_ones(releases: Releases) -> None:
    releases.settle(0.000_1)
    assert releases.release(0.001) < 2 * SHORTEST_S + 0.001
    assert releases.settle(0.000_1) == pytest.approx(SHORTEST_S)


def test_a_release_after_a_pause_does_not_wait(releases: Releases) -> None:
    releases.settle(0.05)
    releases.clock.now_s += 1.0
    assert releases.pace.left_s <= 0

"""The broker's clock against made-up wall and monotonic clocks."""

from __future__ import annotations

from delaylog.broker.host.clock import BrokerClock


class Clocks:
    """A wall and a monotonic clock that the test sets, in seconds."""

    def __init__(self) -> None:
        self.wall_s = 1_000.0
        self.monotonic_s = 50.0
        self.steps: list[int] = []
        self.clock = BrokerClock(
            wall=lambda: self.wall_s, monotonic=lambda: self.monotonic_s, on_step=self.steps.append
        )

    def run(self, seconds: float) -> None:
        """Time passes on both."""
        self.wall_s += seconds
        self.monotonic_s += seconds


def test_follows_wall_time() -> None:
    """Without steps it is the wall clock in whole milliseconds."""
    clocks = Clocks()
    assert clocks.clock.now_ms() == 1_000_000
    clocks.run(1.5)
    assert clocks.clock.now_ms() == 1_001_500
    assert clocks.clock.ahead_ms == 0
    assert clocks.clock.steps == 0


def test_never_runs_backwards() -> None:
    """After a backward step it holds, says by how much, and goes on once wall time caught up."""
    clocks = Clocks()
    clocks.wall_s -= 10
    assert clocks.clock.now_ms() == 1_000_000
    assert clocks.clock.ahead_ms == 10_000
    assert clocks.clock.steps == 1
    assert clocks.steps == [-10_000]
    clocks.run(9)
    assert clocks.clock.now_ms() == 1_000_000
    assert clocks.clock.ahead_ms == 1_000
    clocks.run(2)
    assert clocks.clock.now_ms() == 1_001_000
    assert clocks.clock.ahead_ms == 0
    assert clocks.clock.steps == 1, "a step is counted once"


def test_forward_step_is_reported() -> None:
    """A jump ahead is followed, counted and reported."""
    clocks = Clocks()
    clocks.wall_s += 3_600
    assert clocks.clock.now_ms() == 4_600_000
    assert clocks.steps == [3_600_000]


def test_drift_is_no_step() -> None:
    """Slewing by less than two seconds between looks is drift."""
    clocks = Clocks()
    for _ in range(10):
        clocks.run(1)
        clocks.wall_s += 1.9
        clocks.clock.now_ms()
    assert clocks.clock.steps == 0

"""What a node says and does about clocks that differ: alarms, marks, and who should lead.

Statuses are made up for it; exchanges take no time, so an offset is exact to some microseconds.
"""

from __future__ import annotations

import logging

import pytest

from delaylog.broker.cluster.members.node_status import Status
from delaylog.broker.cluster.watch.clock_watch import ClockWatch

WALL = 1_790_000_000_000_000


class Clocks:
    """The watch of one node; its peers have the clocks that the test says."""

    def __init__(self) -> None:
        self.watch = ClockWatch(lambda peer: f"node {peer}")

    def measure(self, *, delay_ms: int = 0, **ahead_ms: int) -> None:
        """One status of each peer (`n2=300`: that of node 2 is 300 ms ahead)."""
        for name, ms in ahead_ms.items():
            heard = WALL + ms * 1_000 + delay_ms * 500
            status = Status(echo_wall_us=WALL, echo_heard_us=heard, wall_us=heard)
            self.watch.hear(int(name[1:]), status, WALL + delay_ms * 1_000)
        self.watch.look()

    def marks(self, *peers: int) -> list[bool | None]:
        """Of this node and of peers."""
        rows = [self.watch.facts_of(None), *(self.watch.facts_of(peer) for peer in peers)]
        return [row["clock_off"] for row in rows]


@pytest.fixture
def clocks(caplog: pytest.LogCaptureFixture) -> Clocks:
    caplog.set_level(logging.INFO)
    return Clocks()


def test_clocks_that_agree(clocks: Clocks, caplog: pytest.LogCaptureFixture) -> None:
    clocks.measure(n2=3, n3=-4)
    assert clocks.marks(2, 3) == [False, False, False]
    assert clocks.watch.facts() == {"clock_offset_ms": 0, "clock_stands_aside": False}
    row = clocks.watch.facts_of(3)
    assert (row["clock_ahead_ms"], row["clock_uncertainty_ms"]) == (-4, 1)
    assert not caplog.records


def test_a_peer_that_is_not_measured(clocks: Clocks) -> None:
    clocks.watch.hear(2, Status(wall_us=WALL), WALL)
    clocks.watch.look()
    assert clocks.marks(2) == [None, None]
    assert clocks.watch.facts_of(2)["clock_ahead_ms"] is None
    assert clocks.watch.facts()["clock_offset_ms"] is None


def test_a_peer_beyond_the_bound_is_logged_once(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    """With hysteresis: it does not come and go at the bound."""
    for ms in (240, 260, 240, 260, 210):
        clocks.measure(n2=ms, n3=0)
    (said,) = caplog.messages
    assert said == (
        "the clock of node 2 is 260 ms ahead of this node's: one of the two is wrong, look at NTP "
        "on both"
    )
    caplog.clear()
    clocks.measure(n2=190, n3=0)
    clocks.measure(n2=190, n3=0)
    assert caplog.messages == ["the clocks of this node and node 2 agree again"]
    assert clocks.marks(2, 3) == [False, False, False]


def test_a_slow_network_is_no_wrong_clock(clocks: Clocks, caplog: pytest.LogCaptureFixture) -> None:
    clocks.measure(delay_ms=400, n2=300, n3=0)
    assert not caplog.records
    assert clocks.watch.facts_of(2)["clock_ahead_ms"] == 300


def test_the_odd_one_out_is_known_by_all(clocks: Clocks, caplog: pytest.LogCaptureFixture) -> None:
    clocks.measure(n2=0, n3=5_000)
    assert clocks.marks(2, 3) == [False, False, True]
    assert not clocks.watch.is_off
    other = Clocks()
    caplog.clear()
    other.measure(n1=-5_000, n2=-5_000)
    assert other.marks(1, 2) == [True, False, False]
    assert other.watch.is_off
    assert other.watch.facts() == {"clock_offset_ms": 5_000, "clock_stands_aside": True}
    said = "\n".join(caplog.messages)
    assert "this node is 5,000 ms ahead of the median clock of all nodes: look at NTP here" in said
    assert "it leaves the leadership to other nodes" in said


def test_with_two_nodes_nobody_can_tell(clocks: Clocks, caplog: pytest.LogCaptureFixture) -> None:
    clocks.measure(n2=-60_000)
    assert clocks.marks(2) == [None, True]
    assert not clocks.watch.is_off
    assert "one of the two is wrong" in caplog.text
    assert "the median clock" not in caplog.text


def test_what_three_clocks_have_shown_holds_when_a_node_dies(clocks: Clocks) -> None:
    """The leader dies, and of the two that are left the one with the right clock has to lead."""
    clocks.measure(n2=-3_000, n3=-3_000)
    clocks.watch.lost(3)
    clocks.measure(n2=-3_000)
    assert clocks.watch.is_off
    assert clocks.watch.facts() == {"clock_offset_ms": None, "clock_stands_aside": True}
    assert clocks.marks(2, 3) == [True, False, None]
    clocks.watch.lost(2)
    clocks.measure()
    assert clocks.watch.is_off
    for _ in range(2):
        clocks.measure(n2=-100)
    assert not clocks.watch.is_off
    assert clocks.marks(2) == [None, False]


def test_it_stands_again_when_its_clock_is_right(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    for ms in (-2_100, -1_700, -1_500):
        assert clocks.watch.is_off is (ms == -1_500 or ms == -1_700)
        clocks.measure(n2=ms, n3=ms)
    assert not clocks.watch.is_off
    assert caplog.messages.count("this node may lead again: its clock is right") == 1
    clocks.measure(n2=0, n3=0)
    assert "the clock of this node agrees with the others again" in caplog.messages

"""Offsets between clocks against a model that knows the true ones.

Method: two nodes exchange statuses over a network with delays of its own in each direction and
losses; clocks are off, drift and are stepped, and nodes start again. Whatever happens, a measured
range must hold the true offset, but for the exchanges that a step falls into. Then what a node says
and does about it: alarms, marks, and who should lead, by statuses that are made up for it.
"""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.cluster.members.node_status import Status
from delaylog.broker.cluster.watch.clock_watch import (
    SAMPLES_KEPT,
    ClockOffsets,
    ClockWatch,
    Exchange,
    Offset,
    measure,
)

S = 1_000_000
EVERY = S // 2


class Model:
    """This node (0) and one peer (1): true time, what each clock shows, who heard what last."""

    def __init__(self, shifts: tuple[int, int], ppm: int = 0) -> None:
        self.now = 1_000 * S
        self.shifts = list(shifts)
        self.ppm = ppm
        self.heard: list[tuple[int, int] | None] = [None, None]
        self.offsets = ClockOffsets()

    def wall(self, node: int) -> int:
        drift = self.now * self.ppm // 1_000_000 if node else 0
        return self.now + self.shifts[node] + drift

    @property
    def truth(self) -> int:
        return self.wall(1) - self.wall(0)

    def tell(self, sender: int, delay: int) -> None:
        """A status goes over, alone on its way."""
        said, echo = self.wall(sender), self.heard[sender]
        self.now += delay
        receiver = 1 - sender
        self.heard[receiver] = (said, self.wall(receiver))
        if receiver == 0 and echo is not None:
            self.offsets.take(1, Exchange(echo[0], echo[1], said, self.wall(0)))

    def restart(self, node: int) -> None:
        self.heard = [None, None]
        self.offsets.lost(1)


DELAYS = st.integers(0, 2 * S)
TURNS = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.integers(0, 1), DELAYS),
        st.tuples(st.just("lost"), st.integers(0, 1), DELAYS),
        st.tuples(st.just("restart"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.integers(0, 3 * S)),
    ),
    max_size=40,
)
SHIFTS = st.tuples(st.integers(-(1 << 40), 1 << 40), st.integers(-(1 << 40), 1 << 40))


@given(SHIFTS, st.integers(-400, 400), TURNS)
def test_the_true_offset_is_in_the_range(
    shifts: tuple[int, int], ppm: int, turns: list[tuple[str, int, int]]
) -> None:
    model = Model(shifts, ppm)
    for what, node, span in turns:
        if what == "tell":
            model.tell(node, span)
            found = model.offsets.of(1)
            # What was measured a while ago has drifted since.
            slack = 40 * 4 * S * abs(ppm) // 1_000_000 if ppm else 0
            if found is not None:
                assert found.low_us - slack <= model.truth <= found.high_us + slack
        elif what == "restart":
            model.restart(node)
            assert model.offsets.of(1) is None
        else:
            model.now += span


@given(SHIFTS, st.integers(0, S), st.integers(0, S), st.integers(0, 5 * S))
def test_one_exchange_is_wrong_by_half_its_delay_at_most(
    shifts: tuple[int, int], there: int, back: int, held: int
) -> None:
    model = Model(shifts)
    model.tell(0, there)
    model.now += held
    model.tell(1, back)
    found = model.offsets.of(1)
    assert found is not None
    assert abs(found.us - model.truth) <= (there + back + 1) // 2
    assert found.low_us <= model.truth <= found.high_us


@given(SHIFTS, st.integers(0, 1), st.integers(-100 * S, 100 * S), st.integers(0, S // 10))
def test_a_step_is_followed_within_two_exchanges(
    shifts: tuple[int, int], node: int, step: int, delay: int
) -> None:
    """What was measured before goes, unless it may be true still by what was measured since."""
    model = Model(shifts)
    for _ in range(SAMPLES_KEPT):
        model.tell(0, 50)
        model.tell(1, 50)
    model.shifts[node] += step
    for _ in range(2):
        model.now += EVERY
        model.tell(0, delay)
        model.tell(1, delay)
    found = model.offsets.of(1)
    assert found is not None
    newest = delay + 2 * delay // 1_000 + 2
    assert abs(found.us - model.truth) <= 2 * newest + found.uncertainty_us


def test_the_exchange_with_the_smallest_delay_counts() -> None:
    offsets = ClockOffsets()
    for back in (400_000, 300, 900_000):
        offsets.take(1, Exchange(0, 70_100, 70_200, 300 + back))
    found = offsets.of(1)
    assert found is not None
    assert found.us == (70_100 + 70_200 - 600) // 2
    assert found.uncertainty_us == 251
    for _ in range(SAMPLES_KEPT):
        offsets.take(1, Exchange(0, 70_100, 70_200, 900_300))
    found = offsets.of(1)
    assert found is not None
    assert found.uncertainty_us > 400_000, "eight are kept"


@pytest.mark.parametrize("exchange", [(0, 5, 500_000, 6), (10, 5, 5, 4)])
def test_a_step_during_an_exchange(exchange: tuple[int, int, int, int]) -> None:
    assert measure(Exchange(*exchange)) is None


def test_a_node_that_starts_again_is_measured_anew() -> None:
    offsets = ClockOffsets()
    offsets.take(1, Exchange(0, 5, 6, 11))
    assert offsets.of(1) is not None
    offsets.lost(1)
    offsets.lost(1)
    assert (offsets.of(1), offsets.all()) == (None, {})


def exact(*ahead: int) -> ClockOffsets:
    offsets = ClockOffsets()
    for peer, us in enumerate(ahead):
        offsets.take(peer, Exchange(0, us, us, 0))
    return offsets


def test_two_clocks_accuse_nobody() -> None:
    assert exact().middle() is None
    assert exact(S).middle() is None


@pytest.mark.parametrize(
    ("ahead", "middle"),
    [
        ((S, S), S),
        ((S, 2 * S), S),
        ((-S, S), 0),
        ((0, 9 * S), 0),
        ((-S, -S, -S), -S),
        ((0, S, S), 0),
        ((S, 2 * S, 3 * S), S),
        ((-3 * S, -2 * S, -S), -S),
        ((0, 0, S, S), 0),
        ((S, S, S, 0), S),
    ],
)
def test_the_middle_clock(ahead: tuple[int, ...], middle: int) -> None:
    found = exact(*ahead).middle()
    assert found is not None
    assert abs(found.us - middle) <= 1


@given(st.lists(st.integers(-S, S), min_size=3, max_size=7), st.data())
def test_the_middle_is_between_the_middles_of_the_ranges(
    walls: list[int], data: st.DataObject
) -> None:
    """However wrong each measurement is; and somebody's clock is never off."""
    offs = []
    for mine in walls:
        offsets = ClockOffsets()
        others = walls.copy()
        others.remove(mine)
        for peer, wall in enumerate(others):
            there, back = data.draw(st.integers(0, S)), data.draw(st.integers(0, S))
            heard = there + wall - mine
            offsets.take(peer, Exchange(0, heard, heard, there + back))
        middle, true = offsets.middle(), exact(*(wall - mine for wall in others)).middle()
        assert middle is not None
        assert true is not None
        assert middle.low_us - 1 <= true.us <= middle.high_us + 1
        offs.append(middle.at_least_us)
    assert 0 in offs


def test_ranges() -> None:
    assert Offset(5, 3, 8).uncertainty_us == 3
    assert Offset(5, 3, 8).at_least_us == 3
    assert Offset(-5, -8, -3).at_least_us == 3
    assert Offset(1, -1, 2).at_least_us == 0
    assert Offset(5, 3, 8).less(Offset(4, 3, 5)) == Offset(1, -2, 5)
    assert Offset(5, 3, 8).meets(Offset(9, 8, 10))
    assert not Offset(5, 3, 8).meets(Offset(10, 9, 11))


# --------------------------------------------------------------------------- alarms


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

"""Offsets between clocks against a model that knows the true ones.

Method: two nodes exchange statuses over a network with delays of its own in each direction and
losses; clocks are off, drift and are stepped, and nodes start again. Whatever happens, a measured
range must hold the true offset, but for the exchanges that a step falls into.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.cluster.watch.clock_watch import (
    SAMPLES_KEPT,
    ClockOffsets,
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

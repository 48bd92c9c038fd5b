"""The order of dispatch: nothing is published before it was handed out, nothing is skipped."""

from __future__ import annotations

import pytest

from delaylog.replication.epochs import EpochTick
from delaylog.replication.leader import DispatchOrder

START = EpochTick(9, 100, 2, 500, 7)


def made() -> tuple[DispatchOrder, list[EpochTick]]:
    out: list[EpochTick] = []
    return DispatchOrder(START, out.append), out


def test_it_begins_with_what_the_tick_does_not_cover() -> None:
    order, out = made()
    assert order.take(800) == (500, 800)
    assert order.take(800) == (800, 800)
    assert order.take(900) == (800, 900)
    assert out == []


def test_a_second_is_published_when_it_was_handed_out() -> None:
    order, out = made()
    order.begin(101, 5)
    assert out == []
    order.finish(44)
    assert out == [EpochTick(9, 101, 5, 500, 44)]
    assert order.tick == out[0]


def test_what_was_not_handed_out_is_not_published() -> None:
    order, out = made()
    with pytest.raises(AssertionError):
        order.finish(44)
    assert out == []


def test_it_covers_what_was_taken_and_no_more() -> None:
    order, out = made()
    order.take(800)
    with pytest.raises(AssertionError):
        order.cover(801)
    order.cover(700)
    order.cover(600)
    assert [tick.position for tick in out] == [700]


@pytest.mark.parametrize("place", [(99, 9), (100, 1)])
def test_it_never_goes_back(place: tuple[int, int]) -> None:
    order, _ = made()
    with pytest.raises(AssertionError):
        order.begin(*place)

"""Producers: no (producer, sequence) twice, whoever asks, and however often a program starts."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest

from delaylog.client.sending import lane
from delaylog.client.sending.lane import Numbering, Producers
from tests.programs import forked, status_of


def test_a_numbering_that_is_given_back_goes_on_where_it_stood() -> None:
    producers = Producers("orders")
    first = producers.take()
    other = producers.take()
    assert first.producer != other.producer
    assert [first.take(), first.take()] == [0, 1]
    producers.give_back(first)
    again = producers.take()
    assert (again.producer, again.take()) == (first.producer, 2)


def test_a_name_that_is_used_again_by_the_next_run_is_not_the_same_producer() -> None:
    names = {Producers("orders").take().producer for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("orders-") for name in names)


def test_threads_never_share_one() -> None:
    producers = Producers()

    def use(_: int) -> tuple[str, int]:
        numbering = producers.take()
        taken = (numbering.producer, numbering.take())
        producers.give_back(numbering)
        return taken

    with ThreadPoolExecutor(8) as pool:
        used = list(pool.map(use, range(4_000)))
    assert len(set(used)) == len(used)
    assert len({producer for producer, _ in used}) <= 8


def test_threads_of_a_child_that_begin_at_once_never_share_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one is interrupted where it has made half of the new names."""
    producers = Producers()
    producers._process_id = -1
    taken: list[str] = []

    def interrupted() -> deque[Numbering]:
        monkeypatch.undo()
        taken.append(producers.take().producer)
        return deque()

    monkeypatch.setattr(lane, "deque", interrupted)
    taken += [producers.take().producer, producers.take().producer]
    assert len(set(taken)) == 3


def test_a_forked_child_uses_other_names() -> None:
    producers = Producers("orders")
    mine = producers.take()
    producers.give_back(mine)

    def child() -> None:
        producers.give_back(mine)
        name = producers.take().producer
        assert name.startswith("orders-")
        assert name.rpartition("-")[0] != mine.producer.rpartition("-")[0]

    assert status_of(forked(child)) == 0


@pytest.mark.parametrize("label", ["", "p" * 201, 5])
def test_a_name_that_a_broker_would_not_take_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="producer"):
        Producers(label)

"""Which deliveries repeat a message under an open lease, and which rounds they are blamed on."""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.drills.rounds import Round, Strike
from delaylog.broker.drills.timeline import Deliveries
from delaylog.broker.drills.verdict import WINDOW_MS, blame

LEASE_MS = 2_000


def take(it: Deliveries, now_ms: int, *ids: str, node: int = 1, due_ms: int = 0) -> None:
    it.take(node, ids, [due_ms] * len(ids), now_ms=now_ms, until_ms=now_ms + LEASE_MS)


def test_a_second_delivery_within_the_lease_is_a_repeat() -> None:
    it = Deliveries()
    take(it, 1_000, "a", "b")
    take(it, 1_500, "a", node=2)
    (repeat,) = it.repeats
    assert (repeat.id, repeat.first_ms, repeat.second_ms) == ("a", 1_000, 1_500)
    assert it.count == 3


def test_after_the_lease_or_a_nack_it_is_none() -> None:
    it = Deliveries()
    take(it, 1_000, "a", "b")
    it.give_back(["b"])
    take(it, 1_100, "b")
    take(it, 1_000 + LEASE_MS, "a")
    assert not it.repeats


def test_answers_that_cross_are_put_in_order() -> None:
    it = Deliveries()
    take(it, 1_500, "a", node=2)
    take(it, 1_000, "a")
    (repeat,) = it.repeats
    assert (repeat.first_ms, repeat.second_ms) == (1_000, 1_500)


def test_early_ones_are_counted() -> None:
    it = Deliveries()
    take(it, 999, "a", due_ms=1_000)
    take(it, 1_000, "b", due_ms=1_000)
    assert it.early == 1


def test_what_a_node_handed_out_in_a_stretch() -> None:
    it = Deliveries()
    take(it, 1_000, "a", "b")
    take(it, 1_050, "c")
    take(it, 1_060, "d", node=2)
    assert it.last_handed_ms(1, 0, 2_000) == 1_050
    assert it.last_handed_ms(1, 0, 1_049) == 1_000
    assert it.last_handed_ms(3, 0, 2_000) is None
    assert it.handed_between(1, 1_000, 1_050) == 3


def struck(fault_ms: float = 2_000, **members: Any) -> Round:
    return Round(Strike("", 1, fault_ms, fault_ms + 5, fault_ms, **members))


def repeated(first_ms: int, second_ms: int = 2_300) -> Deliveries:
    """Node 1 handed out at `first_ms` and, something else, last at 1990; node 2 repeats."""
    it = Deliveries()
    take(it, first_ms, "a")
    take(it, 1_990, "last")
    take(it, second_ms, "a", node=2)
    return it


def test_the_last_moments_may_be_repeated() -> None:
    one = struck()
    assert blame(repeated(1_990 - WINDOW_MS), [one]) == []
    assert (one.duplicates, one.allowed, one.farthest_ms) == (1, 2, WINDOW_MS)


@pytest.mark.parametrize(
    ("first_ms", "one"),
    [
        (1_989 - WINDOW_MS, struck()),
        (1_990, struck(planned=True)),
        (1_990, struck(disturbs=False)),
        (1_990, struck(fault_ms=2_400)),
    ],
    ids=["older", "planned", "nobody fell", "before any fault"],
)
def test_nothing_else_may(first_ms: int, one: Round) -> None:
    assert len(blame(repeated(first_ms), [one])) >= 1


def test_each_round_answers_for_its_own() -> None:
    first, second = struck(), struck(fault_ms=5_000)
    it = repeated(1_980)
    take(it, 4_990, "b")
    take(it, 5_400, "b", node=2)
    assert blame(it, [first, second]) == []
    assert (first.duplicates, second.duplicates) == (1, 1)
    assert (first.allowed, second.allowed) == (2, 1)

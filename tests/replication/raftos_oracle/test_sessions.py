"""Lives and counters: each datagram is taken once, in the life it was made for.

Method: two sides by hand, then random orders, losses and repeats against a set of what was taken.
"""

from __future__ import annotations

from random import Random

import pytest

from delaylog.replication.raftos_oracle.refusals import Refusal, Refused
from delaylog.replication.raftos_oracle.sessions import FORMER_LIVES_MAX, WINDOW, Sessions, Stamp


def refusal(sessions: Sessions, stamp: Stamp) -> Refusal:
    with pytest.raises(Refused) as caught:
        sessions.admit(1, stamp)
    return caught.value.reason


def test_two_sides_learn_of_each_other() -> None:
    here, there = Sessions("a", [1]), Sessions("b", [0])
    first = here.stamp(1)
    assert first == Stamp("a", None, 1)
    with pytest.raises(Refused):
        there.admit(0, first)
    assert there.admit(0, first._replace(for_life="b"))
    answer = there.stamp(0)
    assert answer == Stamp("b", "a", 1)
    assert here.admit(1, answer)
    assert here.stamp(1) == Stamp("a", "b", 2)
    assert not here.admit(1, there.stamp(0))


def test_once() -> None:
    sessions = Sessions("a", [1])
    for counter in (1, 5, 3, 4):
        sessions.admit(1, Stamp("b", "a", counter))
    for counter in (1, 5, 3, 4):
        assert refusal(sessions, Stamp("b", "a", counter)) == Refusal.REPLAYED
    sessions.admit(1, Stamp("b", "a", 2))


def test_too_old_to_tell() -> None:
    sessions = Sessions("a", [1])
    sessions.admit(1, Stamp("b", "a", 1_000))
    sessions.admit(1, Stamp("b", "a", 1_000 - WINDOW + 1))
    assert refusal(sessions, Stamp("b", "a", 1_000 - WINDOW)) == Refusal.REPLAYED


def test_lives_that_are_over() -> None:
    sessions = Sessions("a", [1, 2])
    assert sessions.admit(1, Stamp("b", "a", 9))
    assert sessions.admit(1, Stamp("c", "a", 1))
    assert refusal(sessions, Stamp("b", "a", 10)) == Refusal.REPLAYED
    assert refusal(sessions, Stamp("c", "earlier", 2)) == Refusal.OTHER_LIFE
    assert refusal(sessions, Stamp("c", None, 2)) == Refusal.OTHER_LIFE
    assert sessions.stamp(1).for_life == "c"
    assert sessions.admit(2, Stamp("b", "a", 1)), "another peer's is another life"


def test_a_bounded_memory() -> None:
    sessions = Sessions("a", [1])
    for number in range(FORMER_LIVES_MAX + 2):
        sessions.admit(1, Stamp(f"life {number}", "a", 1))
    assert refusal(sessions, Stamp("life 1", "a", 2)) == Refusal.REPLAYED
    assert sessions.admit(1, Stamp("life 0", "a", 2))


@pytest.mark.parametrize("seed", range(50))
def test_any_order(seed: int) -> None:
    random = Random(seed)
    sessions = Sessions("a", [1])
    taken: set[int] = set()
    newest = 0
    for _ in range(500):
        counter = max(newest + random.randint(-WINDOW - 5, 4), 1)
        try:
            sessions.admit(1, Stamp("b", "a", counter))
            assert counter not in taken
            taken.add(counter)
        except Refused:
            assert counter in taken or counter <= newest - WINDOW
        newest = max(newest, counter)

"""Lives and counters: each datagram is taken once, in the life that its sender is known to live.

Method: two sides by hand, then random orders, losses and repeats against a set of what was taken.
"""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from delaylog.replication.raftos_oracle.datagrams import WINDOW, Refusal, Refused, Sessions, Stamp
from tests.effort import tries


def made(name: str) -> Sessions:
    """With lives and numbers that can be read: a0 is the life, a1, a2, ... are questions."""
    numbers = count()
    return Sessions([1, 2], lambda: f"{name}{next(numbers)}")


def refusal(sessions: Sessions, stamp: Stamp) -> Refusal:
    with pytest.raises(Refused) as caught:
        sessions.admit(1, stamp)
    return caught.value.reason


def knowing(counter: int = 1) -> Sessions:
    """Life b0 of peer 1 is known, by an answer with this counter."""
    sessions = made("a")
    sessions.take_answer(1, Stamp("b0", counter), sessions.ask(1))
    return sessions


def test_stamps() -> None:
    sessions = made("a")
    assert [sessions.stamp(1), sessions.stamp(1), sessions.stamp(2)] == [
        Stamp("a0", 1),
        Stamp("a0", 2),
        Stamp("a0", 1),
    ]


def test_a_life_is_learned_by_an_answer_only() -> None:
    sessions = made("a")
    assert refusal(sessions, Stamp("b0", 1)) == Refusal.OTHER_LIFE
    sessions.take_answer(1, Stamp("b0", 1), "a1")  # nothing was asked
    assert not sessions.knows(1, "b0")
    assert [sessions.ask(1), sessions.ask(1), sessions.ask(2)] == ["a1", "a1", "a2"]
    sessions.take_answer(1, Stamp("b0", 2), "a2")  # the other one's
    assert refusal(sessions, Stamp("b0", 3)) == Refusal.OTHER_LIFE
    sessions.take_answer(1, Stamp("b0", 4), "a1")
    assert sessions.knows(1, "b0")
    assert not sessions.knows(2, "b0")
    sessions.admit(1, Stamp("b0", 5))
    assert sessions.ask(1) == "a3", "the next question is another one"


def test_what_was_sent_before_the_answer_is_not_taken() -> None:
    sessions = knowing(40)
    for counter in (1, 39, 40):
        assert refusal(sessions, Stamp("b0", counter)) == Refusal.REPLAYED
    sessions.admit(1, Stamp("b0", 41))


def test_an_answer_in_the_same_life_forgets_nothing() -> None:
    sessions = knowing()
    sessions.admit(1, Stamp("b0", 9))
    sessions.take_answer(1, Stamp("b0", 3), sessions.ask(1))
    assert refusal(sessions, Stamp("b0", 9)) == Refusal.REPLAYED
    sessions.admit(1, Stamp("b0", 8))


def test_a_former_life_does_not_come_back() -> None:
    sessions = knowing()
    answer = sessions.ask(1)
    sessions.take_answer(1, Stamp("c0", 1), answer)
    assert refusal(sessions, Stamp("b0", 10)) == Refusal.OTHER_LIFE
    sessions.take_answer(1, Stamp("b0", 11), answer)
    sessions.admit(1, Stamp("c0", 2))
    # An answer that was held back until its sender had died is believed, but not for long.
    late = sessions.ask(1)
    sessions.take_answer(1, Stamp("b0", 12), late)
    assert refusal(sessions, Stamp("c0", 3)) == Refusal.OTHER_LIFE
    sessions.take_answer(1, Stamp("c0", 4), sessions.ask(1))
    sessions.admit(1, Stamp("c0", 5))


def test_once() -> None:
    sessions = knowing()
    for counter in (2, 6, 4, 5):
        sessions.admit(1, Stamp("b0", counter))
    for counter in (2, 6, 4, 5):
        assert refusal(sessions, Stamp("b0", counter)) == Refusal.REPLAYED
    sessions.admit(1, Stamp("b0", 3))


def test_too_old_to_tell() -> None:
    sessions = knowing()
    sessions.admit(1, Stamp("b0", 1_000))
    sessions.admit(1, Stamp("b0", 1_000 - WINDOW + 1))
    assert refusal(sessions, Stamp("b0", 1_000 - WINDOW)) == Refusal.REPLAYED


@pytest.mark.parametrize("seed", range(tries(50)))
def test_any_order(seed: int) -> None:
    random = Random(seed)
    sessions = knowing()
    taken = {1}
    newest = 1
    for _ in range(500):
        counter = max(newest + random.randint(-WINDOW - 5, 4), 1)
        try:
            sessions.admit(1, Stamp("b0", counter))
            assert counter not in taken
            taken.add(counter)
        except Refused:
            assert counter in taken or counter <= newest - WINDOW
        newest = max(newest, counter)

"""The gate: open for so long after the sending of the newest round that a majority took."""

from __future__ import annotations

import pytest

from delaylog.replication.configuration import Configuration
from delaylog.replication.leader import ROUNDS_REMEMBERED, Gate


def test_it_opens_with_a_majority_and_closes_by_time() -> None:
    gate = Gate(0, Configuration((0, 1, 2)), 50)
    assert not gate.is_open(0)
    first = gate.begin_round(100)
    assert not gate.is_open(100)
    gate.take(1, first)
    assert gate.is_open(149)
    assert not gate.is_open(150)


def test_it_counts_from_the_sending_not_from_the_answer() -> None:
    gate = Gate(0, Configuration((0, 1, 2)), 50)
    first, _ = gate.begin_round(100), gate.begin_round(140)
    # The answer to the first round comes late; the second has none yet.
    gate.take(1, first)
    assert gate.is_open(149)
    assert not gate.is_open(151)


def test_five_nodes_need_two_others() -> None:
    gate = Gate(0, Configuration((0, 1, 2, 3, 4)), 50)
    old, new = gate.begin_round(100), gate.begin_round(140)
    gate.take(1, new)
    assert not gate.is_open(141)
    gate.take(2, old)
    assert gate.is_open(149)
    assert not gate.is_open(150)
    gate.take(2, new)
    assert gate.is_open(189)


def test_answers_out_of_order_take_nothing_back() -> None:
    gate = Gate(0, Configuration((0, 1, 2)), 50)
    old, new = gate.begin_round(100), gate.begin_round(140)
    gate.take(1, new)
    gate.take(1, old)
    assert gate.is_open(189)


def test_who_does_not_count_any_more_is_forgotten() -> None:
    gate = Gate(0, Configuration((0, 1, 2)), 50)
    gate.take(1, gate.begin_round(100))
    gate.forget(1)
    assert not gate.is_open(101)


@pytest.mark.parametrize("seq", [0, 999])
def test_unknown_rounds_open_nothing(seq: int) -> None:
    gate = Gate(0, Configuration((0, 1, 2)), 50)
    gate.begin_round(100)
    gate.take(1, seq)
    assert not gate.is_open(101)


def test_it_remembers_so_many_rounds() -> None:
    gate = Gate(0, Configuration((0, 1, 2)), 50)
    for ms in range(ROUNDS_REMEMBERED + 1):
        gate.begin_round(ms)
    gate.take(1, 1)
    assert not gate.is_open(ROUNDS_REMEMBERED)
    gate.take(1, 2)
    assert gate.is_open(50)


def test_alone_it_is_always_open() -> None:
    assert Gate(0, Configuration((0,)), 50).is_open(10**9)


def test_its_age() -> None:
    """Since the sending of the newest round that a majority took, while it is closed too."""
    gate = Gate(0, Configuration((0, 1, 2)), 50)
    assert gate.age_ms(7) is None
    first = gate.begin_round(100)
    assert gate.age_ms(100) is None
    gate.take(1, first)
    assert gate.age_ms(130) == 30
    assert gate.age_ms(400) == 300
    assert Gate(0, Configuration((0,)), 50).age_ms(5) == 0

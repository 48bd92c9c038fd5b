"""How decisions become calls, by a clock of numbers."""

from __future__ import annotations

from delaylog.client.workers.leases import Held, Hold
from delaylog.client.workers.settlements import (
    ACKED,
    GATHER_ROWS_MAX,
    GATHER_S,
    GIVEN_BACK,
    Decision,
    Settling,
    Verb,
)
from tests.client.rows import received


def held(port: int = 0, until_s: float = 30.0) -> Held:
    return Held(received([1])[0], Hold(None, port, until_s=until_s, extend_at_s=15.0), "k")


def test_acks_of_five_milliseconds_are_one_call() -> None:
    settling = Settling()
    rows = [held(), held(), held()]
    for number, row in enumerate(rows):
        settling.add(row, ACKED, 1.0 + number / 1000)
    assert settling.next_at_s(0) == 1.0 + GATHER_S
    assert settling.due(0, 1.0) == []
    (call,) = settling.due(0, 1.0 + GATHER_S)
    assert (call.held, call.verb) == (rows, Verb.ACK)
    assert settling.next_at_s(0) is None


def test_a_thousand_go_at_once_and_the_next_wait_for_more() -> None:
    settling = Settling()
    for _ in range(GATHER_ROWS_MAX + 1):
        settling.add(held(), ACKED, 1.0)
    (full,) = settling.due(0, 1.0)
    assert len(full.held) == GATHER_ROWS_MAX
    (rest,) = settling.due(0, 1.0, everything=True)
    assert len(rest.held) == 1


def test_who_has_to_be_told_is_told_of_the_first_and_of_a_full_one() -> None:
    settling = Settling()
    told = [settling.add(held(), ACKED, 1.0) is not None for _ in range(GATHER_ROWS_MAX)]
    assert told == [True] + [False] * (GATHER_ROWS_MAX - 2) + [True]


def test_shards_verbs_and_waits_are_calls_of_their_own() -> None:
    settling = Settling()
    settling.add(held(0), ACKED, 1.0)
    settling.add(held(1), ACKED, 1.0)
    settling.add(held(0), Decision(Verb.NACK), 1.0)
    settling.add(held(0), Decision(Verb.NACK, 7), 1.0)
    settling.add(held(0), GIVEN_BACK, 1.0)
    calls = settling.due(0, 2.0)
    assert [(call.verb, call.decision.delay_ms) for call in calls] == [
        (Verb.ACK, None),
        (Verb.NACK, None),
        (Verb.NACK, 7),
        (Verb.GIVE_BACK, None),
    ]
    assert [call.port for call in settling.due(1, 2.0)] == [1]


def test_a_call_is_worth_making_until_the_last_of_its_leases_ends() -> None:
    settling = Settling()
    settling.add(held(until_s=5.0), ACKED, 1.0)
    settling.add(held(until_s=9.0), ACKED, 1.0)
    (call,) = settling.due(0, 2.0)
    assert call.until_s == 9.0

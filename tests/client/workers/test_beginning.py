"""When attempts at fetched messages begin, by a clock of numbers."""

from __future__ import annotations

from delaylog.client.models import Settled
from delaylog.client.workers.desk import Desk
from delaylog.client.workers.settlements import Verb
from tests.client.rows import received
from tests.client.workers.test_desk import LEASE_S, begin, make_desk, settlements

DONE = Settled.DONE


def refs(desk: Desk, now_s: float = 0.0) -> list[int]:
    """The messages that the desk wants to begin."""
    return [held.message.ref for held in desk.to_begin(0, now_s)]


def test_only_what_idle_handlers_take_begins_with_the_receive() -> None:
    desk = make_desk(concurrency=3)
    assert desk.begin_at_once(3) is None
    assert desk.begin_at_once(10) == 3
    desk.take_in(0, received([1]), 0.0)
    begin(desk)
    assert desk.begin_at_once(10) == 2


def test_fast_handlers_begin_attempts_with_the_receive() -> None:
    """As many as start within a fiftieth of a second, while no others wait for a call."""
    desk = make_desk(concurrency=1, prefetch=1_000)
    desk.take_in(0, received([1]), 0.0)
    desk.done(begin(desk), 0.001, 0.001)
    desk.ask(0)
    assert desk.begin_at_once(100) == 20
    assert desk.begin_at_once(10) == 10
    desk.take_in(0, received(range(2, 7)), 0.0, 5)
    assert (refs(desk), desk.begin_at_once(100)) == ([], 15)
    desk.take_in(0, received(range(7, 12)), 0.0, 1)
    assert desk.begin_at_once(100) == 0
    assert [begin(desk).message.ref for _ in range(6)] == [2, 3, 4, 5, 6, 7]


def test_what_was_tried_before_does_not_begin_with_the_receive() -> None:
    desk = make_desk(concurrency=4)
    again = received([1, 2, 3], attempts=2)
    again[1].batch.attempts[1] = 1
    desk.take_in(0, again, 0.0, 2)
    assert begin(desk).message.ref == 2
    assert desk.begin(0.0) is None
    assert refs(desk) == [1, 3]


def test_rows_that_the_client_leaves_out_do_not_shift_what_has_begun() -> None:
    desk = make_desk(concurrency=1)
    desk.take_in(0, received([1, 2, 3])[1:], 0.0, 2)
    assert begin(desk).message.ref == 2
    assert refs(desk) == []
    assert desk.waiting == 1


def test_a_fetched_message_begins_when_a_handler_is_free() -> None:
    desk = make_desk(concurrency=1)
    asked: list[int] = []
    desk.on_begin = asked.append
    desk.take_in(0, received([1, 2, 3]), 0.0, 1)
    first = begin(desk)
    assert desk.begin(0.0) is None
    assert refs(desk) == []
    desk.done(first, 1.0, 1.0)
    asked.clear()
    assert desk.begin(1.0) is None
    assert asked == [0]
    assert refs(desk) == [2]
    assert refs(desk) == [], "one call at a time"
    assert desk.begin(1.0) is None
    desk.begun(0, [DONE], 0.0)
    assert begin(desk).message.ref == 2
    assert desk.waiting == 1


def test_fast_handlers_find_messages_that_have_begun() -> None:
    desk = make_desk(concurrency=1, prefetch=1_000)
    desk.take_in(0, received(range(1_000)), 0.0, 1)
    desk.done(begin(desk), 0.001, 0.001)
    desk.ask(0)
    assert refs(desk) == list(range(1, 21))
    desk.begun(0, [DONE] * 20, 0.0)
    asked: list[int] = []
    desk.on_begin = asked.append
    for _ in range(9):
        desk.done(begin(desk), 0.001, 0.01)
    assert asked == []
    desk.done(begin(desk), 0.001, 0.01)
    assert asked == [0]
    assert refs(desk) == list(range(21, 31))


def test_a_lease_that_has_ended_does_not_begin() -> None:
    desk = make_desk(concurrency=4)
    desk.take_in(0, received([1, 2]), 0.0, 0)
    desk.take_in(0, received([3, 4], lease=2), 1.0, 0)
    assert refs(desk, LEASE_S) == [3, 4]
    desk.begun(0, [Settled.GONE, DONE], 0.0)
    assert begin(desk, LEASE_S).message.ref == 4
    assert desk.begin(LEASE_S) is None
    assert desk.waiting == 0


def test_a_call_that_failed_is_made_again() -> None:
    desk = make_desk(concurrency=2)
    desk.take_in(0, received([1, 2, 3]), 0.0, 0)
    assert refs(desk) == [1, 2]
    desk.not_begun(0)
    assert refs(desk) == [1, 2]


def test_what_was_tried_before_begins_alone() -> None:
    """After the acks of the handlers before it, since it may end the worker."""
    desk = make_desk(concurrency=1, prefetch=1_000)
    desk.take_in(0, received([1]), 0.0)
    desk.done(begin(desk), 0.001, 0.001)
    desk.ask(0)
    desk.take_in(0, received([2, 3], attempts=2, lease=2), 0.0, 0)
    assert refs(desk) == [], "the ack of 1 is not answered"
    (acks,) = desk.settlements(0, 1.0)
    asked: list[int] = []
    desk.on_begin = asked.append
    desk.settled(acks, [DONE])
    assert asked == [0]
    assert refs(desk) == [2]


def test_a_stop_returns_what_has_not_begun() -> None:
    desk = make_desk(concurrency=1)
    desk.take_in(0, received([1, 2, 3]), 0.0, 0)
    assert refs(desk) == [1]
    desk.give_back_waiting(0.0)
    assert settlements(desk) == [(Verb.GIVE_BACK, None, [2, 3, 1])]
    desk.begun(0, [DONE], 0.0)
    assert desk.begin(0.0) is None
    assert (desk.waiting, refs(desk)) == (0, [])


def test_acks_of_slow_handlers_go_at_once() -> None:
    desk = make_desk(concurrency=1)
    desk.take_in(0, received([1, 2]), 0.0)
    desk.done(begin(desk), 0.1, 0.1)
    desk.ask(0)
    assert desk.settlements(0, 0.1) == []
    (gathered,) = desk.settlements(0, 0.2)
    desk.settled(gathered, [DONE])
    desk.done(begin(desk, 0.2), 0.1, 0.3)
    assert [each.verb for each in desk.settlements(0, 0.3)] == [Verb.ACK]

"""Who waits for a key is woken when it comes free, wherever the messages of the key are by then.

A receiver that finds a key held parks its messages and sleeps. Then the lots are emptied in one
way or another: the messages are in the queues again, where the sleeper does not look by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delaylog.broker.engine.deliver import receiving
from delaylog.broker.engine.deliver.selecting import ReceiveRequest
from delaylog.broker.engine.ready.ready_queues import FILTER_IDLE_MS, FILTERS_MAX
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.topics.idle import look_after_groups
from tests.broker.engine.ready.test_keys import send

X, Y, Z = (TagFilter.parse([tag]) for tag in "xyz")
HOUR = 3_600_000


@pytest.fixture
def host(open_host: Any) -> Any:
    host = open_host()
    host.configure(backoff={"first_ms": HOUR}, max_retry=1)
    return host


def ask_with_another(host: Any) -> None:
    assert host.receive(only=Z) == []


def peek_with_another(host: Any) -> None:
    state, topic, now_ms = host.engine.state, host.topic, host.now_ms
    receiving.peek(state, topic, topic.default, ReceiveRequest(count_max=1, now_ms=now_ms, only=Z))


def give_a_priority(host: Any) -> None:
    """The queues of filters start over in the new order, long before that message is ready."""
    send(host, ("", "later"), delay=2 * HOUR, priority=7)


def leave_filters_idle(host: Any) -> None:
    host.advance(FILTER_IDLE_MS + 1)
    look_after_groups(host.engine.state, host.now_ms)


def ask_with_many_others(host: Any) -> None:
    for k in range(FILTERS_MAX):
        host.receive(only=TagFilter.parse([f"other{k}"]))


EMPTYINGS = [
    ask_with_another,
    peek_with_another,
    give_a_priority,
    leave_filters_idle,
    ask_with_many_others,
]


def is_woken(host: Any) -> bool:
    """Whether the edge would wake somebody, as of the last time that this was asked."""
    topic, state = host.topic, host.engine.state
    woken = (
        topic.number,
        topic.default.number,
    ) in state.marks.newly_ready and topic.default.has_ready
    state.marks.newly_ready.clear()
    return woken


@pytest.mark.parametrize("parked_max", [0, 1_000], ids=["disk", "memory"])
@pytest.mark.parametrize("only", [None, X], ids=["any", "filter"])
@pytest.mark.parametrize("empty", EMPTYINGS)
def test_a_key_comes_free_after_its_lot_was_emptied(
    host: Any, empty: Callable[[Any], None], only: TagFilter | None, parked_max: int
) -> None:
    host.topic.default.gate.parking.parked_max = parked_max
    send(host, ("a", "a0"), ("a", "a1"), ("b", "b0"), tags=["x,y", "x,y", "y"])
    held = host.receive(lease=HOUR)
    assert [m.body for m in held] == [b"a0", b"b0"]
    assert host.receive(only=Y) == host.receive(only=only) == []
    empty(host)
    is_woken(host)
    host.ack(held[1:])
    assert not is_woken(host), "nobody waits for that key"
    host.ack(held[:1])
    assert is_woken(host)
    assert host.bodies(only=only) == [b"a1"]


def ack(host: Any, held: list[Any], ids: list[str]) -> None:
    host.ack(held)


def let_it_die(host: Any, held: list[Any], ids: list[str]) -> None:
    host.nack(held, 0)
    held = host.receive(chosen=ids)
    is_woken(host)
    host.nack(held, 0)


def cancel_by_force(host: Any, held: list[Any], ids: list[str]) -> None:
    assert host.cancel(ids, force=True) == [0]


def cancel_its_retry(host: Any, held: list[Any], ids: list[str]) -> None:
    host.nack(held, HOUR)
    is_woken(host)
    assert host.cancel(ids) == [0]


def move_its_retry(host: Any, held: list[Any], ids: list[str]) -> None:
    host.nack(held, HOUR)
    is_woken(host)
    assert host.reschedule(ids, host.now_ms + 2 * HOUR) == [0]


@pytest.mark.parametrize("only", [None, X], ids=["any", "filter"])
@pytest.mark.parametrize(
    "free", [ack, let_it_die, cancel_by_force, cancel_its_retry, move_its_retry]
)
def test_a_key_comes_free_in_any_way(
    host: Any, free: Callable[[Any, list[Any], list[str]], None], only: TagFilter | None
) -> None:
    ids = host.ids_of(send(host, ("a", "0"), ("a", "1"), tags=["x", "x"]))
    held = host.receive(lease=HOUR)
    assert host.receive(only=only) == []
    ask_with_another(host)
    is_woken(host)
    free(host, held, ids[:1])
    assert is_woken(host)
    assert host.bodies(only=only) == [b"1"]


@pytest.mark.parametrize("only", [None, X], ids=["any", "filter"])
@pytest.mark.parametrize("empty", EMPTYINGS)
def test_a_predecessor_ends_after_its_lot_was_emptied(
    host: Any, empty: Callable[[Any], None], only: TagFilter | None
) -> None:
    host.send([b"0"], ids=["i"], tags=["x"])
    held = host.receive(lease=HOUR)
    host.send([b"1"], ids=["i"], merge="replace", tags=["x"])
    assert host.receive(only=Y) == host.receive(only=only) == []
    empty(host)
    is_woken(host)
    host.ack(held)
    assert is_woken(host)
    assert host.bodies(only=only) == [b"1"]


def test_only_keys_that_are_held_wake_after_their_lot_was_emptied(host: Any) -> None:
    send(host, ("a", "0"), ("a", "1"), ("b", "2"), ("b", "3"))
    held = host.receive(lease=HOUR)
    assert host.receive() == []
    host.ack(held[:1])
    ask_with_another(host)
    is_woken(host)
    host.ack(held[1:])
    assert is_woken(host)
    assert sorted(host.bodies()) == [b"1", b"3"]

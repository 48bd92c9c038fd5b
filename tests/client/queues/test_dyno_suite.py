"""The checks that Dyno-queues' own tests make, on a real broker.

Method: waits are for what must come; where a length of time is the subject (an unack time, an empty
pop) the real clock is asked afterwards.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from delaylog.client import Client
from delaylog.client.queues import DynoMessage, DynoQueue
from tests.broker.conftest import Broker


@pytest.fixture
def queue(client: Client, name: str) -> DynoQueue:
    return DynoQueue(client, name, unack_ms=1_000)


def test_all_of_it(queue: DynoQueue) -> None:
    """Ten of priority 10..1: peek and pop agree, the lowest first; after the unack time the same
    ten in the same order; acknowledged once; nothing is left.
    """
    queue.push([DynoMessage(str(n), f"Hello World-{n}", priority=10 - n) for n in range(10)])
    assert queue.size() == len(queue.get_all_messages()) == 10
    expected = [str(n) for n in reversed(range(10))]
    peeked = queue.peek(10)
    assert [message.id for message in peeked] == expected
    assert [message.priority for message in peeked] == list(range(1, 11))
    assert peeked[0].payload == "Hello World-9"

    popped = []
    while taken := queue.pop(1):
        popped += taken
    assert [message.id for message in popped] == expected
    assert (queue.size(), queue.peek(10)) == (0, [])
    assert queue.shard_sizes() == {"default": {"size": 0, "uacked": 10}}

    while queue.size() < 10:
        time.sleep(0.01)
    again = queue.pop(10, wait_ms=10_000)
    assert [message.id for message in again] == expected

    for message in again:
        assert queue.ack(message.id)
        assert not queue.ack(message.id)
    assert queue.get_all_messages() == []
    assert queue.shard_sizes() == {"default": {"size": 0, "uacked": 0}}


def test_a_delayed_message_is_invisible_and_then_visible(queue: DynoQueue) -> None:
    began = time.monotonic()
    queue.push([DynoMessage("x", "Hello World", timeout_ms=500)])
    assert queue.size() == 1
    assert queue.peek(1) == queue.pop(1) == []
    [taken] = queue.pop(1, wait_ms=10_000)
    assert time.monotonic() - began >= 0.5
    assert (taken.id, taken.payload, taken.timeout_ms) == ("x", "Hello World", 500)


def test_the_unack_timeout_is_moved(queue: DynoQueue) -> None:
    """To 500 ms, 10 s and 0, with process_unacks between: it comes back when it is over, not
    before, and 0 brings it back at once.
    """
    queue.push([DynoMessage("x", "Hello World")])
    [taken] = queue.pop(1, wait_ms=1_000)
    began = time.monotonic()
    assert queue.set_unack_timeout("x", 500)
    queue.process_unacks()
    assert queue.pop(1) == []
    [again] = queue.pop(1, wait_ms=10_000)
    assert time.monotonic() - began >= 0.5
    assert again == taken

    assert queue.set_unack_timeout("x", 10_000)
    queue.process_unacks()
    # Longer than the unack time of the queue.
    assert queue.pop(1, wait_ms=1_200) == []
    assert queue.set_unack_timeout("x", 0)
    queue.process_unacks()
    [last] = queue.pop(1)
    assert last == taken
    assert queue.ack("x")
    assert not queue.set_unack_timeout("x", 500)


def test_a_timeout_is_moved(queue: DynoQueue) -> None:
    queue.push([DynoMessage("x", "p", timeout_ms=20_000)])
    assert queue.pop(1) == []
    assert queue.set_timeout("x", 1)
    [taken] = queue.pop(1, wait_ms=10_000)
    assert taken.payload == "p"
    assert not queue.set_timeout("x", 1)


def test_clear_empties(queue: DynoQueue) -> None:
    queue.push([DynoMessage(str(n)) for n in range(10)])
    queue.pop(3, wait_ms=1_000)
    assert queue.shard_sizes() == {"default": {"size": 7, "uacked": 3}}
    queue.clear()
    assert queue.size() == 0
    assert queue.get_all_messages() == []
    assert queue.pop(1) == []


def test_an_empty_pop_of_a_second(queue: DynoQueue) -> None:
    """It takes a second at least, and has prefetched nothing."""
    began = time.monotonic()
    assert queue.pop(1, wait_ms=1_000) == []
    assert time.monotonic() - began >= 1.0
    assert queue.stats["prefetch"].count == 0


@pytest.mark.parametrize("apart", [False, True], ids=["one object", "an object each"])
def test_each_message_once_among_many_hands(
    shared: Broker,
    name: str,
    in_threads: Callable[..., None],
    apart: bool,
) -> None:
    """10,000 messages, three producers, two consumers of 100, an unack time that never ends."""
    count, producers = 10_000, 3
    received: Counter[str] = Counter()
    guard = threading.Lock()
    clients = [Client(shared.url) for _ in range(5 if apart else 1)]
    queues = [DynoQueue(client, name) for client in clients] * (1 if apart else 5)

    def produce(queue: DynoQueue, first: int) -> None:
        numbers = list(range(first, count, producers))
        for at in range(0, len(numbers), 50):
            queue.push([DynoMessage(f"m{n}", f"p{n}") for n in numbers[at : at + 50]])

    def consume(queue: DynoQueue) -> None:
        while received.total() < count:
            taken = queue.pop(100, wait_ms=10)
            assert queue.ack_all(taken) == len(taken)
            with guard:
                received.update(message.id for message in taken)

    in_threads(
        *(lambda n=n: produce(queues[n], n) for n in range(producers)),
        *(lambda n=n: consume(queues[n]) for n in (3, 4)),
    )
    assert len(received) == count
    assert set(received.values()) == {1}
    assert queues[0].shard_sizes() == {"default": {"size": 0, "uacked": 0}}
    for client in clients:
        client.close()

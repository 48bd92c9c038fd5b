"""Pushes, acknowledgements, moved times and removals of a Dyno queue, and the leases it knows."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from delaylog.client.errors import NotReached
from delaylog.client.message import LeasedMessage
from delaylog.client.queues import DynoMessage, DynoQueue, by_id
from delaylog.client.queues.dyno_shards import Held


def test_pushing_an_id_again_replaces_it(queue: DynoQueue) -> None:
    queue.push([DynoMessage("x", "first", timeout_ms=3_600_000)])
    queue.push([DynoMessage("x", "second", priority=7)])
    [taken] = queue.pop(2)
    assert (taken.payload, taken.priority) == ("second", 7)
    assert queue.size() == 0


def test_a_push_of_a_taken_id_comes_after_it(queue: DynoQueue) -> None:
    """The original loses it: the acknowledgement of the first removes the body of the second."""
    queue.push([DynoMessage("x", "first")])
    [taken] = queue.pop(1)
    queue.push([DynoMessage("x", "second")])
    assert queue.pop(1) == []
    assert queue.ack("x")
    [again] = queue.pop(1)
    assert (taken.payload, again.payload) == ("first", "second")
    assert queue.ack("x")
    assert queue.get_all_messages() == []


def test_a_strategy_of_ones_own(client: Any) -> None:
    """By id: an id that is pushed again stays in its shard, so it is in one queue only."""
    queue = DynoQueue(client, "q", shards=["a", "b"], strategy=by_id)
    for _ in range(3):
        queue.push([DynoMessage(str(n)) for n in range(20)])
    assert queue.size() == 20
    assert all(size["size"] > 0 for size in queue.shard_sizes().values())


class Away:
    """Another client of a broker, which cannot reach it to send."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def send_many(self, *_: object, **__: object) -> list[Any]:
        raise NotReached("it is away")


def test_a_client_for_each_shard_and_failover_of_a_push(client: Any) -> None:
    """A broker each, as the original has an endpoint in each zone; one of them goes away."""
    away = Away(client)
    queue = DynoQueue({"a": client, "b": away}, "q", own_shard="a")
    assert queue.push([DynoMessage(str(n)) for n in range(4)]) == ["0", "1", "2", "3"]
    assert {message.shard for message in queue.pop(4)} == {"a"}
    for gone in (
        DynoQueue({"a": client, "b": away}, "q", strategy=lambda shards, message: "b"),
        DynoQueue({"b": away, "c": away}, "q"),
    ):
        with pytest.raises(NotReached):
            gone.push([DynoMessage("x")])


def test_an_id_that_another_object_took_is_settled_by_force(queue: DynoQueue, client: Any) -> None:
    other = DynoQueue(client, queue.name)
    queue.push([DynoMessage("x"), DynoMessage("y")])
    assert not other.ack("x"), "it is not taken yet"
    queue.pop(2)
    assert other.set_unack_timeout("y", 0)
    assert [message.id for message in queue.peek(2)] == ["y"]
    assert other.ack("x")
    assert not queue.ack("x")
    assert not other.ack("x")
    assert [message.id for message in queue.get_all_messages()] == ["y"]


def test_who_acknowledges_too_late_ends_nothing(client: Any, clock: Any) -> None:
    """Its unack time is over and another consumer works on the message: the original ends it."""
    late, other = DynoQueue(client, "q", unack_ms=50), DynoQueue(client, "q")
    late.push([DynoMessage("x")])
    late.pop(1)
    clock.advance(ms=50)
    [taken] = other.pop(1)
    assert not late.ack("x")
    assert late.ack_all([taken]) == 0
    assert not late.set_unack_timeout("x", 0)
    assert other.shard_sizes() == {"default": {"size": 0, "uacked": 1}}
    assert other.ack("x")


def test_the_unack_timeout_is_moved(client: Any, clock: Any) -> None:
    """To 500 ms, 10 s and 0, with process_unacks between: it comes back when it is over, not
    before, and 0 brings it back at once.
    """
    queue = DynoQueue(client, "q", unack_ms=1_000)
    queue.push([DynoMessage("x")])
    [taken] = queue.pop(1)
    for timeout_ms in (500, 10_000, 0):
        assert queue.set_unack_timeout("x", timeout_ms)
        queue.process_unacks()
        if timeout_ms:
            clock.advance(ms=timeout_ms - 1)
            assert queue.pop(1) == []
            clock.advance(ms=1)
        assert queue.pop(1) == [taken]
    assert queue.ack("x")
    assert not queue.set_unack_timeout("x", 500)


def test_times_below_zero_are_refused(queue: DynoQueue) -> None:
    for call in (queue.set_timeout, queue.set_unack_timeout):
        with pytest.raises(ValueError, match="0 ms or more, not -1"):
            call("x", -1)


def test_set_timeout_keeps_the_priority(queue: DynoQueue, clock: Any) -> None:
    """The original's place no longer has it after that."""
    queue.push([DynoMessage(str(n), timeout_ms=60_000, priority=9 - n) for n in range(3)])
    for n in range(3):
        assert queue.set_timeout(str(n), 5)
    clock.advance(ms=4)
    assert queue.pop(3) == []
    clock.advance(ms=1)
    assert {m.id: m.priority for m in queue.pop(3)} == {"0": 9, "1": 8, "2": 7}
    assert not queue.set_timeout("0", 5), "it is taken"
    assert not queue.set_timeout("nobody's", 5)


def test_remove_takes_what_is_queued_and_leaves_what_is_taken(queue: DynoQueue) -> None:
    queue.push([DynoMessage("queued", timeout_ms=60_000), DynoMessage("taken")])
    queue.pop(1)
    assert queue.remove("queued")
    for message_id in ("queued", "taken", "nobody's"):
        assert not queue.remove(message_id)
    assert queue.ack("taken"), "the original takes its place in unack away"
    assert queue.get_all_messages() == []


def test_atomic_remove_takes_both(queue: DynoQueue) -> None:
    queue.push([DynoMessage("queued", timeout_ms=60_000), DynoMessage("taken")])
    queue.pop(1)
    assert queue.atomic_remove("queued")
    assert queue.atomic_remove("taken")
    assert not queue.atomic_remove("taken")
    assert not queue.ack("taken")
    assert queue.get_all_messages() == []


def test_remove_looks_in_every_shard(sharded: DynoQueue) -> None:
    """An id that was pushed twice may be in two queues; it is gone from both."""
    sharded.push([DynoMessage("x"), DynoMessage("x")])
    assert sharded.size() == 2
    assert sharded.remove("x")
    assert sharded.size() == 0


def test_ensure_pushes_what_is_nowhere(sharded: DynoQueue) -> None:
    sharded.push([DynoMessage("queued", timeout_ms=60_000), DynoMessage("taken", "old")])
    [taken] = sharded.unsafe_pop_all_shards(1)
    assert taken.id == "taken"
    for known in ("queued", "taken"):
        assert not sharded.ensure(DynoMessage(known, "new"))
    assert sharded.ensure(DynoMessage("fresh"))
    assert not sharded.ensure(DynoMessage("fresh"))
    assert sharded.ack("taken")
    assert sharded.ensure(DynoMessage("taken"))
    assert sharded.size() == 3


def test_of_many_who_ensure_one_pushes(client: Any, in_threads: Callable[..., None]) -> None:
    queues = [DynoQueue(client, "q", shards=["a", "b"]) for _ in range(4)]
    pushed: Counter[str] = Counter()
    guard = threading.Lock()

    def ensure(queue: DynoQueue) -> None:
        for n in range(40):
            if queue.ensure(DynoMessage(str(n))):
                with guard:
                    pushed[str(n)] += 1

    in_threads(*(lambda q=q: ensure(q) for q in queues))
    assert pushed == {str(n): 1 for n in range(40)}
    assert queues[0].size() == 40


def deliveries(client: Any, count: int) -> list[LeasedMessage]:
    """Of the messages 0, 1, …, in that order."""
    DynoQueue(client, "q").push([DynoMessage(str(n), priority=n) for n in range(count)])
    return sorted(client.receive("q", max=count), key=lambda message: int(message.id))


def test_the_newest_delivery_of_an_id_counts(client: Any) -> None:
    held = Held()
    [old] = deliveries(client, 1)
    client.extend(old, lease=timedelta(0))
    [new] = client.receive("q")
    held.keep("a", [old])
    held.keep("b", [new])
    assert held.find("0") == ("b", new)
    held.drop("0", old)
    assert held.find("0") == ("b", new), "the older one was settled"
    held.drop("0", new)
    assert held.find("0") is None
    held.drop("0", new)


def test_the_newest_are_remembered(client: Any) -> None:
    held = Held(held_max=3)
    messages = deliveries(client, 6)
    held.keep("a", messages[:3])
    held.keep("a", messages[:1])
    held.keep("a", messages[3:5])
    assert [n for n in range(6) if held.find(str(n))] == [0, 3, 4]
    assert len(held) == 3
    held.clear()
    assert len(held) == 0

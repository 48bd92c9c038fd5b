"""Pops, pops by id and peeks, and where they differ from the original on purpose."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import delaylog
from delaylog.client.errors import NotReached
from delaylog.client.models import NewMessage
from delaylog.client.queues import DynoMessage, DynoQueue

DAY_MS = 86_400_000


def ids(messages: list[DynoMessage]) -> list[str]:
    return [message.id for message in messages]


def test_the_scenes_of_the_originals_own_tests(client: Any, clock: Any) -> None:
    """Ten of priority 10..1 come at their millisecond, the lowest first; peek and pop agree. After
    the unack time come the same ten in the same order; nothing is left once they are acknowledged.
    """
    queue = DynoQueue(client, "q", unack_ms=1_000)
    rows = [DynoMessage(str(n), f"p{n}", timeout_ms=DAY_MS, priority=10 - n) for n in range(10)]
    queue.push(rows)
    assert queue.size() == len(queue.get_all_messages()) == 10
    clock.advance(days=1, ms=-1)
    assert queue.pop(10) == queue.peek(10) == []
    clock.advance(ms=1)
    expected = [str(n) for n in reversed(range(10))]
    peeked = queue.peek(10)
    assert ids(peeked) == expected
    assert [message.priority for message in peeked] == list(range(1, 11))
    assert (peeked[0].payload, peeked[0].timeout_ms) == ("p9", DAY_MS)
    popped = []
    while taken := queue.pop(1):
        popped += taken
    assert ids(popped) == expected
    assert (queue.size(), queue.peek(10)) == (0, [])
    clock.advance(ms=999)
    assert queue.shard_sizes() == {"default": {"size": 0, "uacked": 10}}
    clock.advance(ms=1)
    assert ids(queue.pop(10)) == expected
    for message_id in expected:
        assert queue.ack(message_id)
        assert not queue.ack(message_id)
    assert queue.get_all_messages() == []
    assert queue.shard_sizes() == {"default": {"size": 0, "uacked": 0}}


def test_a_message_comes_as_it_was_pushed(queue: DynoQueue) -> None:
    pushed = DynoMessage("id 1/ü", "päyload\n\x00", priority=99)
    assert queue.push([pushed]) == ["id 1/ü"]
    for [found] in (queue.peek(5), queue.pop(1), [queue.get("id 1/ü")]):
        assert found == pushed
        assert (found.payload, found.timeout_ms) == ("päyload\n\x00", 0)
        assert (found.priority, found.shard) == (99, "default")
    assert queue.push([]) == []
    assert queue.unack_ms == 60_000


def test_shards_take_turns_beginning_with_the_second(sharded: DynoQueue, client: Any) -> None:
    sharded.push([DynoMessage(str(n)) for n in range(6)])
    counts = {"size": 2, "uacked": 0}
    assert sharded.shard_sizes() == {"a": counts, "b": counts, "c": counts}
    assert sharded.size() == 6
    assert ids(sharded.pop(6)) == ["2", "5"], "pop takes from the own shard only"
    assert sharded.peek(6) == []
    assert set(ids(sharded.unsafe_peek_all_shards(9))) == {"0", "1", "3", "4"}
    assert len(sharded.unsafe_peek_all_shards(3)) == 3
    elsewhere = DynoQueue(client, sharded.name, shards=["a", "b", "c"], own_shard="b")
    assert ids(elsewhere.unsafe_pop_all_shards(3)) == ["0", "3", "1"]
    assert ids(elsewhere.unsafe_bulk_pop(3)) == ["4"]
    assert sharded.shard_sizes()["c"] == {"size": 0, "uacked": 2}
    assert elsewhere.ack_all([DynoMessage(str(n), shard="c") for n in (1, 4)]) == 2
    assert elsewhere.ack_all([DynoMessage("2"), DynoMessage("5"), DynoMessage("nobody's")]) == 2
    assert sharded.ack("0")
    assert sharded.ack("3")
    assert sharded.get_all_messages() == []


def test_bulk_pop_is_a_pop(queue: DynoQueue) -> None:
    queue.push([DynoMessage(str(n)) for n in range(2_500)])
    popped = queue.bulk_pop(5_000, wait_ms=1)
    assert len(set(ids(popped))) == 2_500
    assert queue.ack_all(popped) == 2_500


@pytest.mark.parametrize("call", ["pop", "bulk_pop", "unsafe_pop_all_shards", "unsafe_bulk_pop"])
@pytest.mark.parametrize("count", [0, -1])
def test_a_pop_of_nothing_asks_nothing(queue: DynoQueue, call: str, count: int) -> None:
    assert getattr(queue, call)(count, wait_ms=3_600_000) == []
    assert queue.stats["batch_size"].count == 0


@pytest.mark.parametrize("call", ["pop", "unsafe_pop_all_shards"])
def test_a_pop_waits_until_it_is_full(
    sharded: DynoQueue, in_threads: Callable[..., None], call: str
) -> None:
    popped: list[DynoMessage] = []
    wanted = 3 if call == "pop" else 9

    def push() -> None:
        for n in range(9):
            sharded.push([DynoMessage(str(n))])

    in_threads(lambda: popped.extend(getattr(sharded, call)(wanted, wait_ms=60_000)), push)
    assert len(popped) == wanted


class Failing:
    """Receives, extensions and peeks of some topics fail."""

    def __init__(self, client: Any, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        self._receive, self._extend, self._error = client.receive, client.extend, error
        self.topics: set[str] = set()
        monkeypatch.setattr(client, "receive", self.receive)
        monkeypatch.setattr(client, "extend", self.extend)
        self._peek = client.peek
        monkeypatch.setattr(client, "peek", self.peek)

    def receive(self, topic: str, **asked: Any) -> Any:
        if topic in self.topics:
            raise self._error
        return self._receive(topic, **asked)

    def peek(self, topic: str, **asked: Any) -> Any:
        if topic in self.topics:
            raise self._error
        return self._peek(topic, **asked)

    def extend(self, messages: list[Any], **asked: Any) -> Any:
        if messages[0].topic in self.topics:
            raise self._error
        return self._extend(messages, **asked)


@pytest.mark.parametrize("down", ["q.a", "q.b", "q.c"])
@pytest.mark.parametrize("call", ["unsafe_pop_all_shards", "unsafe_bulk_pop"])
def test_a_pop_of_all_shards_skips_those_that_are_away(
    client: Any, sharded: DynoQueue, monkeypatch: pytest.MonkeyPatch, down: str, call: str
) -> None:
    sharded.push([DynoMessage(str(n)) for n in range(6)])
    failing = Failing(client, monkeypatch, NotReached("the zone is away"))
    failing.topics = {down}
    popped = getattr(sharded, call)(6, wait_ms=30)
    assert sorted({f"q.{each.shard}" for each in popped} | {down}) == ["q.a", "q.b", "q.c"]
    assert len(popped) == 4
    assert all(sharded.ack(each.id) for each in popped)
    assert getattr(sharded, call)(1) == []
    failing.topics = {"q.a", "q.b", "q.c"}
    with pytest.raises(NotReached, match="the zone is away"):
        getattr(sharded, call)(1, wait_ms=60_000)


@pytest.mark.parametrize("down", ["q.a", "q.b", "q.c"])
def test_a_peek_of_all_shards_skips_those_that_are_away(
    client: Any, sharded: DynoQueue, monkeypatch: pytest.MonkeyPatch, down: str
) -> None:
    sharded.push([DynoMessage(str(n)) for n in range(6)])
    failing = Failing(client, monkeypatch, NotReached("the zone is away"))
    failing.topics = {down}
    peeked = sharded.unsafe_peek_all_shards(6)
    assert sorted({f"q.{each.shard}" for each in peeked} | {down}) == ["q.a", "q.b", "q.c"]
    assert len(peeked) == 4
    failing.topics = {"q.a", "q.b", "q.c"}
    for peek in (sharded.peek, sharded.unsafe_peek_all_shards):
        with pytest.raises(NotReached, match="the zone is away"):
            peek(1)


def test_a_pop_returns_what_it_has_when_its_shard_goes_away(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: what it has would be delivered again before the wait is over."""
    queue = DynoQueue(client, "q", unack_ms=1_000)
    queue.push([DynoMessage("x")])
    failing = Failing(client, monkeypatch, NotReached("the zone is away"))
    receive = failing.receive

    def once(topic: str, **asked: Any) -> Any:
        found = receive(topic, **asked)
        failing.topics = {"q"}
        return found

    monkeypatch.setattr(client, "receive", once)
    assert ids(queue.pop(2, wait_ms=60_000)) == ["x"]
    assert queue.ack("x")


def test_a_pop_gives_back_what_its_caller_does_not_get(
    client: Any, sharded: DynoQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharded.push([DynoMessage(str(n)) for n in range(6)])
    failing = Failing(client, monkeypatch, ValueError("no such thing"))
    failing.topics = {"q.c"}
    with pytest.raises(ValueError, match="no such thing"):
        sharded.unsafe_pop_all_shards(6)
    failing.topics = set()
    assert len(sharded._held) == 0
    assert [each["uacked"] for each in sharded.shard_sizes().values()] == [0, 0, 0]
    assert len(sharded.unsafe_pop_all_shards(6)) == 6


def test_a_pop_that_waits_ends_though_the_clock_stands(sharded: DynoQueue) -> None:
    """Its wait is real time, so a program that is tried out under such a clock does not hang."""
    sharded.push([DynoMessage("x", timeout_ms=DAY_MS)])
    for call in (sharded.pop, sharded.unsafe_pop_all_shards):
        began = time.monotonic()
        assert call(1, wait_ms=30) == []
        assert time.monotonic() - began >= 0.03
    assert sharded.stats["prefetch"].count == 0
    assert sharded.unsafe_pop_with_msg_id_all_shards("x") == DynoMessage("x")


def test_what_a_pop_waits_with_keeps_its_whole_unack_time(tmp_path: Path) -> None:
    """The first message is taken at once and the pop waits three unack times for a second one:
    nobody else gets the first meanwhile, and it is still there to acknowledge. By the wall clock.
    """
    with delaylog.open(tmp_path / "wall", fsync="never") as client:
        queue, other = DynoQueue(client, "q", unack_ms=1_500), DynoQueue(client, "q")
        queue.push([DynoMessage("x")])
        popped: list[DynoMessage] = []
        popping = threading.Thread(target=lambda: popped.extend(queue.pop(2, wait_ms=4_500)))
        popping.start()
        while queue.shard_sizes()["default"]["uacked"] == 0:
            time.sleep(0.005)
        assert other.pop(1, wait_ms=3_900) == []
        popping.join()
        assert ids(popped) == ["x"]
        assert queue.ack("x")


def test_pop_with_msg_id_takes_what_is_not_due(queue: DynoQueue, client: Any) -> None:
    queue.push([DynoMessage("due"), DynoMessage("later", "p", timeout_ms=DAY_MS)])
    assert queue.atomic_pop_with_msg_id_all_shards("later") is None
    taken = queue.pop_with_msg_id("later")
    assert taken is not None
    assert taken.payload == "p"
    assert queue.pop_with_msg_id("later") is None, "it is taken"
    assert queue.pop_with_msg_id("nobody's") is None
    assert queue.stats.queue_miss == 3
    assert queue.ack("later")
    assert queue.pop_with_msg_id("later") is None, "it has ended"
    due = queue.atomic_pop_with_msg_id_all_shards("due")
    assert due is not None
    assert queue.set_unack_timeout("due", 0)
    assert queue.pop_with_msg_id("due") == due
    assert client.get(queue.name, "due").attempts == 1, "what is given back was not tried"


def test_pop_with_msg_id_of_one_that_nobody_may_have_puts_its_time_back(
    queue: DynoQueue, client: Any
) -> None:
    """A paused topic hands nothing out: the message must not stay due for having been asked for."""
    queue.push([DynoMessage("x", timeout_ms=DAY_MS)])
    due = client.get(queue.name, "x").deliver_at_ms
    client.pause(queue.name)
    assert queue.pop_with_msg_id("x") is None
    client.resume(queue.name)
    found = client.get(queue.name, "x")
    assert (found.state, found.deliver_at_ms) == ("waiting", due)
    assert queue.pop(1) == []


def test_pop_with_msg_id_while_an_older_one_is_in_work(queue: DynoQueue) -> None:
    queue.push([DynoMessage("x", "old")])
    queue.pop(1)
    queue.push([DynoMessage("x", "new", timeout_ms=DAY_MS)])
    assert queue.pop_with_msg_id("x") is None
    assert queue.ack("x")
    assert queue.pop(1) == [], "the newer one kept its time"
    taken = queue.pop_with_msg_id("x")
    assert taken is not None
    assert taken.payload == "new"


def test_pop_with_msg_id_looks_where_it_says(sharded: DynoQueue) -> None:
    sharded.push([DynoMessage("0", timeout_ms=60_000)])
    assert sharded.pop_with_msg_id("0") is None, "it is in shard b"
    taken = sharded.unsafe_pop_with_msg_id_all_shards("0")
    assert taken is not None
    assert taken.shard == "b"
    assert sharded.unsafe_pop_with_msg_id_all_shards("0") is None


def test_one_of_many_gets_a_message_by_its_id(client: Any, in_threads: Callable[..., None]) -> None:
    """Four callers ask for the same 60 ids, due and not, while a fifth pops what is due: each
    message once, and what nobody asked for by id stays until its time.
    """
    queues = [DynoQueue(client, "q") for _ in range(5)]
    wanted = [f"m{n}" for n in range(60)]
    queues[0].push([DynoMessage(m, timeout_ms=DAY_MS * (at % 2)) for at, m in enumerate(wanted)])
    queues[0].push([DynoMessage("later", timeout_ms=DAY_MS)])
    taken: Counter[str] = Counter()
    guard, asking = threading.Lock(), [4]

    def ask(queue: DynoQueue) -> None:
        for message_id in wanted:
            if queue.pop_with_msg_id(message_id) is not None:
                with guard:
                    taken[message_id] += 1
        with guard:
            asking[0] -= 1

    def pop() -> None:
        while asking[0]:
            for message in queues[4].pop(1, wait_ms=5):
                with guard:
                    taken[message.id] += 1

    in_threads(*(lambda q=q: ask(q) for q in queues[:4]), pop)
    assert taken == dict.fromkeys(wanted, 1)
    assert queues[0].shard_sizes() == {"default": {"size": 1, "uacked": 60}}


@pytest.mark.parametrize("objects", [1, 5], ids=["one object", "an object each"])
def test_each_message_once_among_many_hands(
    client: Any, in_threads: Callable[..., None], objects: int
) -> None:
    """10,000 messages, three producers, two consumers of 100, an unack time that never ends."""
    count, producers = 10_000, 3
    received: Counter[str] = Counter()
    guard = threading.Lock()
    queues = [DynoQueue(client, "q") for _ in range(objects)] * (5 // objects)

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
    assert received == {f"m{n}": 1 for n in range(count)}
    assert queues[0].shard_sizes() == {"default": {"size": 0, "uacked": 0}}


def test_what_others_sent_is_read_as_it_can_be(queue: DynoQueue, client: Any) -> None:
    rows = [
        NewMessage(b"\xff\xfe", id="raw", priority=5),
        NewMessage("p", priority=-1_000, headers={"dyno-timeout-ms": "soon"}),
    ]
    [_, made] = client.send_many(queue.name, rows)
    raw, other = sorted(queue.pop(2), key=lambda message: message.id != "raw")
    assert raw.payload.encode(errors="surrogateescape") == b"\xff\xfe"
    assert (raw.priority, other.priority, other.timeout_ms) == (0, 99, 0)
    assert other.id == made.id
    assert queue.ack(made.id)


def test_a_timeout_of_thousands_of_digits_stops_no_pop(queue: DynoQueue, client: Any) -> None:
    client.send(queue.name, "p", headers={"dyno-timeout-ms": "9" * 5_000})
    assert [each.timeout_ms for each in queue.pop(1)] == [0]

"""Each call of a Dyno queue on a real broker, and where it differs from the original on purpose.

Method: topics of each test's own; a second queue object stands for another consumer.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from delaylog.client import Client
from delaylog.client.errors import NotReached
from delaylog.client.models import NewMessage
from delaylog.client.queues import DynoMessage, DynoQueue, TopicMismatch, by_id
from tests.broker.conftest import Broker

WAIT_MS = 10_000


@pytest.fixture
def queue(client: Client, name: str) -> DynoQueue:
    return DynoQueue(client, name)


@pytest.fixture
def sharded(client: Client, name: str) -> DynoQueue:
    return DynoQueue(client, name, shards=["a", "b", "c"], own_shard="a")


def ids(messages: list[DynoMessage]) -> list[str]:
    return [message.id for message in messages]


def test_a_message_comes_as_it_was_pushed(queue: DynoQueue) -> None:
    pushed = DynoMessage("id 1/ü", "päyload\n\x00", priority=99)
    assert queue.push([pushed]) == ["id 1/ü"]
    for [found] in (queue.peek(5), queue.pop(1, wait_ms=WAIT_MS), [queue.get("id 1/ü")]):
        assert found == pushed
        assert (found.payload, found.timeout_ms, found.priority, found.shard) == (
            "päyload\n\x00",
            0,
            99,
            "default",
        )
    assert queue.push([]) == []
    assert queue.unack_ms == 60_000


def test_pushing_an_id_again_replaces_it(queue: DynoQueue) -> None:
    queue.push([DynoMessage("x", "first", timeout_ms=3_600_000)])
    queue.push([DynoMessage("x", "second", priority=7)])
    [taken] = queue.pop(2)
    assert (taken.payload, taken.priority) == ("second", 7)
    assert queue.size() == 0


def test_a_push_of_a_taken_id_comes_after_it(queue: DynoQueue) -> None:
    """The original loses it: the acknowledgement of the first removes the body of the second."""
    queue.push([DynoMessage("x", "first")])
    [taken] = queue.pop(1, wait_ms=WAIT_MS)
    queue.push([DynoMessage("x", "second")])
    assert queue.pop(1) == []
    assert queue.ack("x")
    [again] = queue.pop(1, wait_ms=WAIT_MS)
    assert (taken.payload, again.payload) == ("first", "second")
    assert queue.ack("x")
    assert queue.get_all_messages() == []


def test_shards_take_turns_beginning_with_the_second(sharded: DynoQueue, client: Client) -> None:
    sharded.push([DynoMessage(str(n)) for n in range(6)])
    counts = {"size": 2, "uacked": 0}
    assert sharded.shard_sizes() == {"a": counts, "b": counts, "c": counts}
    assert sharded.size() == 6
    assert ids(sharded.pop(6)) == ["2", "5"], "pop takes from the own shard only"
    assert ids(sharded.peek(6)) == []
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


def test_a_strategy_of_ones_own(client: Client, name: str) -> None:
    """By id: an id that is pushed again stays in its shard, so it is in one queue only."""
    queue = DynoQueue(client, name, shards=["a", "b"], strategy=by_id)
    for _ in range(3):
        queue.push([DynoMessage(str(n)) for n in range(20)])
    assert queue.size() == 20
    assert all(size["size"] > 0 for size in queue.shard_sizes().values())


def test_bulk_pop_is_a_pop(queue: DynoQueue) -> None:
    queue.push([DynoMessage(str(n)) for n in range(2_500)])
    popped = queue.bulk_pop(5_000, wait_ms=1)
    assert len(set(ids(popped))) == 2_500
    assert queue.ack_all(popped) == 2_500


@pytest.mark.parametrize("call", ["pop", "bulk_pop", "unsafe_pop_all_shards", "unsafe_bulk_pop"])
@pytest.mark.parametrize("count", [0, -1])
def test_a_pop_of_nothing_asks_nothing(queue: DynoQueue, call: str, count: int) -> None:
    began = time.monotonic()
    assert getattr(queue, call)(count, wait_ms=5_000) == []
    assert queue.stats["batch_size"].count == 0
    assert time.monotonic() - began < 5


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


def test_what_a_pop_waits_with_keeps_its_whole_unack_time(client: Client, name: str) -> None:
    """The first message is taken at once and the pop waits three unack times for a second one:
    nobody else gets the first meanwhile, and it is still there to acknowledge.
    """
    queue, other = DynoQueue(client, name, unack_ms=500), DynoQueue(client, name)
    queue.push([DynoMessage("x")])
    taken_elsewhere: list[DynoMessage] = []
    watching = threading.Thread(
        target=lambda: taken_elsewhere.extend(other.pop(1, wait_ms=1_400)), daemon=True
    )
    while queue.shard_sizes()["default"]["size"] == 0:
        time.sleep(0.005)
    popped: list[DynoMessage] = []
    popping = threading.Thread(target=lambda: popped.extend(queue.pop(2, wait_ms=1_500)))
    popping.start()
    while queue.shard_sizes()["default"]["uacked"] == 0:
        time.sleep(0.005)
    watching.start()
    popping.join()
    assert ids(popped) == ["x"]
    assert queue.ack("x")
    watching.join()
    assert taken_elsewhere == []


def test_pop_with_msg_id_takes_what_is_not_due(queue: DynoQueue, client: Client) -> None:
    queue.push([DynoMessage("due"), DynoMessage("later", "p", timeout_ms=3_600_000)])
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
    again = queue.pop_with_msg_id("due")
    assert again == due
    assert client.get(queue.name, "due").attempts == 1, "what is given back was not tried"


def test_pop_with_msg_id_of_one_that_nobody_may_have_puts_its_time_back(
    queue: DynoQueue, client: Client
) -> None:
    """A paused topic hands nothing out: the message must not stay due for having been asked for."""
    queue.push([DynoMessage("x", timeout_ms=3_600_000)])
    due = client.get(queue.name, "x").deliver_at_ms
    client.pause(queue.name)
    assert queue.pop_with_msg_id("x") is None
    client.resume(queue.name)
    found = client.get(queue.name, "x")
    assert (found.state, found.deliver_at_ms) == ("waiting", due)
    assert queue.pop(1) == []


def test_pop_with_msg_id_while_an_older_one_is_in_work(queue: DynoQueue) -> None:
    queue.push([DynoMessage("x", "old")])
    queue.pop(1, wait_ms=WAIT_MS)
    queue.push([DynoMessage("x", "new", timeout_ms=3_600_000)])
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


def test_one_of_many_gets_a_message_by_its_id(
    shared: Broker, name: str, in_threads: Callable[..., None]
) -> None:
    """Four callers ask for the same 60 ids, due and not, while a fifth pops what is due: each
    message once, and what nobody asked for by id stays until its time.
    """
    clients = [Client(shared.url) for _ in range(5)]
    queues = [DynoQueue(client, name) for client in clients]
    wanted = [f"m{n}" for n in range(60)]
    queues[0].push([DynoMessage(m, timeout_ms=3_600_000 * (at % 2)) for at, m in enumerate(wanted)])
    queues[0].push([DynoMessage("later", timeout_ms=3_600_000)])
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
    assert set(taken) == set(wanted)
    assert set(taken.values()) == {1}
    assert queues[0].shard_sizes() == {"default": {"size": 1, "uacked": 60}}
    for client in clients:
        client.close()


def test_an_id_that_another_object_took_is_settled_by_force(
    queue: DynoQueue, client: Client
) -> None:
    other = DynoQueue(client, queue.name)
    queue.push([DynoMessage("x"), DynoMessage("y")])
    assert not other.ack("x"), "it is not taken yet"
    queue.pop(2, wait_ms=WAIT_MS)
    assert other.set_unack_timeout("y", 0)
    assert ids(queue.peek(2)) == ["y"]
    assert other.ack("x")
    assert not queue.ack("x")
    assert not other.ack("x")
    assert ids(queue.get_all_messages()) == ["y"]


def test_who_acknowledges_too_late_ends_nothing(client: Client, name: str) -> None:
    """Its unack time is over and another consumer works on the message: the original ends it."""
    late, other = DynoQueue(client, name, unack_ms=50), DynoQueue(client, name)
    late.push([DynoMessage("x")])
    late.pop(1, wait_ms=WAIT_MS)
    [taken] = other.pop(1, wait_ms=WAIT_MS)
    assert not late.ack("x")
    assert late.ack_all([taken]) == 0
    assert not late.set_unack_timeout("x", 0)
    assert other.shard_sizes() == {"default": {"size": 0, "uacked": 1}}
    assert other.ack("x")


def test_times_below_zero_are_refused(queue: DynoQueue) -> None:
    for call in (queue.set_timeout, queue.set_unack_timeout):
        with pytest.raises(ValueError, match="0 ms or more, not -1"):
            call("x", -1)


def test_set_timeout_keeps_the_priority(queue: DynoQueue) -> None:
    """The original's place no longer has it after that."""
    queue.push([DynoMessage(str(n), timeout_ms=60_000, priority=9 - n) for n in range(3)])
    for n in range(3):
        assert queue.set_timeout(str(n), 0)
    assert {m.id: m.priority for m in queue.pop(3, wait_ms=WAIT_MS)} == {"0": 9, "1": 8, "2": 7}
    assert not queue.set_timeout("nobody's", 5)


def test_remove_takes_what_is_queued_and_leaves_what_is_taken(queue: DynoQueue) -> None:
    queue.push([DynoMessage("queued", timeout_ms=60_000), DynoMessage("taken")])
    queue.pop(1, wait_ms=WAIT_MS)
    assert queue.remove("queued")
    assert not queue.remove("queued")
    assert not queue.remove("taken")
    assert not queue.remove("nobody's")
    assert queue.ack("taken"), "the original takes its place in unack away"
    assert queue.get_all_messages() == []


def test_atomic_remove_takes_both(queue: DynoQueue) -> None:
    queue.push([DynoMessage("queued", timeout_ms=60_000), DynoMessage("taken")])
    queue.pop(1, wait_ms=WAIT_MS)
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
    assert ids(sharded.unsafe_pop_all_shards(1, wait_ms=WAIT_MS)) == ["taken"]
    for known in ("queued", "taken"):
        assert not sharded.ensure(DynoMessage(known, "new"))
    assert sharded.ensure(DynoMessage("fresh"))
    assert not sharded.ensure(DynoMessage("fresh"))
    assert sharded.ack("taken")
    assert sharded.ensure(DynoMessage("taken"))
    assert sharded.size() == 3


def test_of_many_who_ensure_one_pushes(
    shared: Broker, name: str, in_threads: Callable[..., None]
) -> None:
    clients = [Client(shared.url) for _ in range(4)]
    queues = [DynoQueue(client, name, shards=["a", "b"]) for client in clients]
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
    for client in clients:
        client.close()


def test_get_knows_what_is_queued_and_taken(sharded: DynoQueue) -> None:
    sharded.push([DynoMessage("b"), DynoMessage("c"), DynoMessage("a", timeout_ms=60_000)])
    assert {m: sharded.get(m) for m in "abc"} == {m: DynoMessage(m) for m in "abc"}
    assert [sharded.local_get(m) is not None for m in "abc"] == [True, False, False]
    assert len(sharded.unsafe_pop_all_shards(2, wait_ms=WAIT_MS)) == 2
    assert sharded.get("b") == DynoMessage("b")
    sharded.ack("b")
    assert sharded.get("b") is None
    assert sharded.get("nobody's") is None


def test_all_messages_come_as_their_json(sharded: DynoQueue) -> None:
    sharded.push([DynoMessage("1", "é"), DynoMessage("2", timeout_ms=60_000, priority=3)])
    sharded.unsafe_pop_all_shards(1, wait_ms=WAIT_MS)
    assert {m.id: m.payload for m in sharded.get_all_messages()} == {
        "1": '{"id":"1","payload":"é","timeout":0,"priority":0,"shard":"b"}',
        "2": '{"id":"2","timeout":60000,"priority":3,"shard":"c"}',
    }


def test_predicates_see_the_json(sharded: DynoQueue) -> None:
    sharded.push([DynoMessage("b", "red apple"), DynoMessage("c", "pear"), DynoMessage("a", "fig")])
    apple, fig = (re.compile(pattern).search for pattern in ("app.e", "fig"))
    assert sharded.contains_predicate(apple)
    assert not sharded.contains_predicate(apple, local=True)
    assert sharded.contains_predicate(fig, local=True)
    assert sharded.get_msg_with_predicate(lambda text: '"payload":"pear"' in text) == "c"
    assert sharded.get_msg_with_predicate(lambda text: "plum" in text) is None
    sharded.pop(1, wait_ms=WAIT_MS)
    assert sharded.contains_predicate(fig), "taken ones are found too"
    assert not sharded.contains_predicate(fig, local=True)


def test_the_first_due_match_is_taken(sharded: DynoQueue) -> None:
    sharded.push(
        [DynoMessage(f"{n}", f"kind {n % 2}", priority=10 - n) for n in range(6)]
        + [DynoMessage("later", "kind 1", timeout_ms=60_000)]
    )
    while len(sharded.unsafe_peek_all_shards(9)) < 6:
        time.sleep(0.005)
    taken = sharded.pop_msg_with_predicate(lambda text: "kind 1" in text)
    assert taken is not None
    assert taken.payload.startswith(f'{{"id":"{taken.id}","payload":"kind 1"')
    others = [sharded.pop_msg_with_predicate(lambda text: "kind 1" in text) for _ in range(3)]
    assert {taken.id, *(m.id for m in others if m)} == {"1", "3", "5"}
    assert others[2] is None
    kind_0 = re.compile("kind 0").search
    assert sharded.pop_msg_with_predicate(kind_0, local=True) == DynoMessage("2")
    assert sharded.pop_msg_with_predicate(kind_0, local=True) is None
    assert sharded.ack("1")


def test_of_one_millisecond_the_lowest_priority_is_taken(client: Client, name: str) -> None:
    """Over all shards, whatever the order of arrival."""
    queue = DynoQueue(client, name, shards=["a", "b"])
    due = time.time_ns() // 1_000_000
    for shard, message_id, priority in (("a", "x", 5), ("a", "y", 2), ("b", "z", 3)):
        row = NewMessage("p", id=message_id, priority=-priority, deliver_at_ms=due + 60_000)
        client.send_many(f"{name}.{shard}", [row])
    for shard, message_id in (("a", "x"), ("a", "y"), ("b", "z")):
        client.reschedule(f"{name}.{shard}", message_id, deliver_at_ms=due + 300)
    while len(queue.unsafe_peek_all_shards(3)) < 3:
        time.sleep(0.01)
    taken = [queue.pop_msg_with_predicate(bool) for _ in range(3)]
    assert [message.id for message in taken if message] == ["y", "z", "x"]


def test_chores_have_nothing_to_do(queue: DynoQueue) -> None:
    queue.push([DynoMessage("x"), DynoMessage("y", timeout_ms=60_000)])
    queue.pop(1, wait_ms=WAIT_MS)
    assert queue.process_unacks() == queue.atomic_process_unacks() == 0
    depth = queue.stats["queue_depth"]
    assert (depth.count, depth.min, depth.max) == (2, 1, 1)
    assert queue.stats["process_unack"].count == 2


def test_close_forgets_and_leaves_the_client(queue: DynoQueue, client: Client) -> None:
    with queue:
        queue.push([DynoMessage("x")])
        queue.pop(1, wait_ms=WAIT_MS)
    assert client.stats(queue.name).counts.leased == 1
    assert queue.ack("x"), "by its bare id"


def test_a_topic_of_another_use_is_left_alone(client: Client, name: str) -> None:
    client.send_many(name, [NewMessage("b", id="b")])
    with pytest.raises(TopicMismatch, match="merge is 'keep' and has to be 'replace'"):
        DynoQueue(client, name)
    assert client.get_topic(name).settings.merge == "keep"


def test_the_shards_make_sense(client: Client, name: str) -> None:
    for wrong, words in (
        ({"shards": ["a", "a"]}, "named twice"),
        ({"shards": []}, "at least one shard"),
        ({"shards": ["a"], "own_shard": "b"}, "none of"),
        ({"unack_ms": 0}, "1 ms or more"),
    ):
        with pytest.raises(ValueError, match=words):
            DynoQueue(client, name, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="clients are given for"):
        DynoQueue({"a": client}, name, shards=["a", "b"])
    with pytest.raises(TypeError, match="shards are a list of texts, not one text"):
        DynoQueue(client, name, shards="abc")
    with pytest.raises(TypeError, match="a topic is named by a str, not int"):
        DynoQueue(client, 5)  # type: ignore[arg-type]


class Unreachable(Client):
    """A client whose broker has gone."""

    def send_many(self, *_: object, **__: object) -> list:
        raise NotReached("it is away")


def test_a_client_for_each_shard_and_failover_of_a_push(shared: Broker, name: str) -> None:
    """A broker each, as the original has an endpoint in each zone; one of them goes away."""
    here, there = Client(shared.url), Unreachable(shared.url)
    queue = DynoQueue({"a": here, "b": there}, name, own_shard="a")
    assert queue.push([DynoMessage(str(n)) for n in range(4)]) == ["0", "1", "2", "3"]
    assert {message.shard for message in queue.pop(4, wait_ms=WAIT_MS)} == {"a"}
    fixed = DynoQueue({"a": here, "b": there}, name, strategy=lambda shards, message: "b")
    with pytest.raises(NotReached):
        fixed.push([DynoMessage("x")])
    gone = DynoQueue({"b": there, "c": there}, name)
    with pytest.raises(NotReached):
        gone.push([DynoMessage("x")])
    here.close()
    there.close()


def test_what_others_sent_is_read_as_it_can_be(queue: DynoQueue, client: Client) -> None:
    rows = [
        NewMessage(b"\xff\xfe", id="raw", priority=5),
        NewMessage("p", priority=-1_000, headers={"dyno-timeout-ms": "soon"}),
    ]
    [_, made] = client.send_many(queue.name, rows)
    raw, other = sorted(queue.pop(2, wait_ms=WAIT_MS), key=lambda message: message.id != "raw")
    assert raw.payload.encode(errors="surrogateescape") == b"\xff\xfe"
    assert (raw.priority, other.priority, other.timeout_ms) == (0, 99, 0)
    assert other.id == made.id
    assert queue.ack(made.id)

"""What a Dyno queue holds, searches in it, calls of the queue as a whole, and its messages."""

from __future__ import annotations

import re
from typing import Any

import pytest

from delaylog.client.models import NewMessage
from delaylog.client.queues import DynoMessage, DynoQueue
from delaylog.client.queues.dyno_message import encode


def test_get_knows_what_is_queued_and_taken(sharded: DynoQueue) -> None:
    sharded.push([DynoMessage("b"), DynoMessage("c"), DynoMessage("a", timeout_ms=60_000)])
    assert {m: sharded.get(m) for m in "abc"} == {m: DynoMessage(m) for m in "abc"}
    assert [sharded.local_get(m) is not None for m in "abc"] == [True, False, False]
    assert len(sharded.unsafe_pop_all_shards(2)) == 2
    assert sharded.get("b") == DynoMessage("b")
    sharded.ack("b")
    assert sharded.get("b") is None
    assert sharded.get("nobody's") is None


def test_all_messages_come_as_their_json(sharded: DynoQueue) -> None:
    sharded.push([DynoMessage("1", "é"), DynoMessage("2", timeout_ms=60_000, priority=3)])
    sharded.unsafe_pop_all_shards(1)
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
    sharded.pop(1)
    assert sharded.contains_predicate(fig), "taken ones are found too"
    assert not sharded.contains_predicate(fig, local=True)


def test_the_first_due_match_is_taken(sharded: DynoQueue) -> None:
    sharded.push(
        [DynoMessage(f"{n}", f"kind {n % 2}", priority=10 - n) for n in range(6)]
        + [DynoMessage("later", "kind 1", timeout_ms=60_000)]
    )
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


def test_of_one_millisecond_the_lowest_priority_is_taken(client: Any, clock: Any) -> None:
    """Over all shards, whatever the order of arrival."""
    queue = DynoQueue(client, "q", shards=["a", "b"])
    due_ms = clock.now_ms() + 300
    for shard, message_id, priority in (("a", "x", 5), ("a", "y", 2), ("b", "z", 3)):
        row = NewMessage("p", id=message_id, priority=-priority, deliver_at_ms=due_ms)
        client.send_many(f"q.{shard}", [row])
    clock.advance(ms=300)
    taken = [queue.pop_msg_with_predicate(bool) for _ in range(3)]
    assert [message.id for message in taken if message] == ["y", "z", "x"]


def test_chores_have_nothing_to_do(queue: DynoQueue) -> None:
    queue.push([DynoMessage("x"), DynoMessage("y", timeout_ms=60_000)])
    queue.pop(1)
    assert queue.process_unacks() == queue.atomic_process_unacks() == 0
    depth = queue.stats["queue_depth"]
    assert (depth.count, depth.min, depth.max) == (2, 1, 1)
    assert queue.stats["process_unack"].count == 2


def test_clear_empties(sharded: DynoQueue) -> None:
    sharded.push([DynoMessage(str(n)) for n in range(9)])
    sharded.pop(2)
    assert sharded.shard_sizes()["a"] == {"size": 1, "uacked": 2}
    sharded.clear()
    assert sharded.size() == 0
    assert sharded.get_all_messages() == sharded.unsafe_pop_all_shards(1) == []


def test_close_forgets_and_leaves_the_client(queue: DynoQueue, client: Any) -> None:
    with queue:
        queue.push([DynoMessage("x")])
        queue.pop(1)
    assert client.stats(queue.name).counts.leased == 1
    assert queue.ack("x"), "by its bare id"


def test_the_shards_make_sense(client: Any) -> None:
    for wrong, words in (
        ({"shards": ["a", "a"]}, "named twice"),
        ({"shards": []}, "at least one shard"),
        ({"shards": ["a"], "own_shard": "b"}, "none of"),
        ({"unack_ms": 0}, "1 ms or more"),
    ):
        with pytest.raises(ValueError, match=words):
            DynoQueue(client, "q", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="clients are given for"):
        DynoQueue({"a": client}, "q", shards=["a", "b"])
    with pytest.raises(TypeError, match="shards are a list of texts, not one text"):
        DynoQueue(client, "q", shards="abc")
    with pytest.raises(TypeError, match="a topic is named by a str, not int"):
        DynoQueue(client, 5)  # type: ignore[arg-type]


def test_its_json_leaves_out_what_is_empty() -> None:
    assert encode(DynoMessage("m")) == '{"id":"m","timeout":0,"priority":0}'
    full = DynoMessage("é", '"x"', timeout_ms=5, priority=9, shard="a")
    wanted = '{"id":"é","payload":"\\"x\\"","timeout":5,"priority":9,"shard":"a"}'
    assert encode(full) == wanted


@pytest.mark.parametrize("priority", [-1, 100])
def test_a_priority_out_of_range_is_refused(priority: int) -> None:
    with pytest.raises(ValueError, match="priority"):
        DynoMessage("m", priority=priority)


def test_messages_are_equal_by_id() -> None:
    assert len({DynoMessage("m", "x"), DynoMessage("m", "y", timeout_ms=4)}) == 1


def test_it_prints_by_its_name_and_without_its_payload() -> None:
    message = DynoMessage("a", "secret", timeout_ms=5, priority=3, shard="b")
    assert repr(message) == (
        "DynoMessage(id='a', timeout_ms=5, priority=3, shard='b', 6 characters)"
    )

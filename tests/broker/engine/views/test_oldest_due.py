"""The oldest ready message of a group is found wherever its ref lies, and no ended one is told."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from delaylog.broker.engine.views import oldest_due as module
from delaylog.broker.engine.views.oldest_due import FRONT_REFS, OldestDue, oldest_due_ms
from delaylog.storage.layout import MessageState
from tests.broker.engine.host import HOUR
from tests.effort import tries


def oldest(host: Any, group: str = "default") -> int | None:
    """Milliseconds since the due time of the oldest ready message."""
    (due_ms,) = oldest_due_ms(host.engine.state, [host.topic.group(group)])
    return None if due_ms is None else host.now_ms - due_ms


def test_none_is_ready(host: Any) -> None:
    assert oldest_due_ms(host.engine.state, []) == []
    assert oldest(host) is None
    host.send(1, delay=9_000)
    assert oldest(host) is None
    host.send(1)
    host.receive()
    host.advance(1_000)
    assert oldest(host) is None, "it was handed out"


def test_behind_many_that_ended(host: Any) -> None:
    """Cancelled refs stay in the queue until a receive gets to them."""
    host.send(500, ids=[f"{n}" for n in range(500)])
    host.advance(5_000)
    host.send(1, ids=["left"])
    host.advance(70)
    assert oldest(host) == 5_070
    host.cancel([f"{n}" for n in range(500)])
    assert oldest(host) == 70
    host.cancel(["left"])
    assert oldest(host) is None


def test_hours_in_which_all_has_ended(host: Any) -> None:
    host.send(3, delay=[0, HOUR, 2 * HOUR], ids=["a", "b", "c"])
    host.send(FRONT_REFS, ids=[f"{n}" for n in range(FRONT_REFS)])
    host.advance(2 * HOUR + 400)
    host.cancel(["a", "b", *(f"{n}" for n in range(FRONT_REFS))])
    assert oldest(host) == 400


def test_a_stuck_key(host: Any) -> None:
    """Its messages are parked, while those of other keys go on; the first one has ended."""
    host.send(3, ids=["holder", "gone", "victim"], keys=["k"] * 3)
    host.receive(1, lease=3_600_000)
    host.advance(1)
    assert host.receive() == []
    host.cancel(["gone"])
    for _ in range(5):
        host.send(2, keys=["other", ""])
        host.advance(1_000)
        host.ack(host.receive())
    assert host.topic.default.gate.parked
    assert oldest(host) == 5_001


@pytest.mark.parametrize("settings", [{"order": "priority"}, {"order": "priority", "aging_ms": 9}])
def test_a_low_priority(host: Any, settings: dict[str, Any]) -> None:
    """It is behind all others, and the oldest."""
    host.configure(**settings)
    host.send(1, priority=0, ids=["low"])
    for _ in range(30):
        host.advance(100)
        host.send(20, priority=200)
        host.ack(host.receive(10))
    assert oldest(host) == 3_000


def test_each_group_has_its_own(host: Any) -> None:
    """What one group has taken, and what was purged or sent before it was made, counts not."""
    host.send(1)
    host.advance(1_000)
    host.put_group("late")
    host.put_group("purged")
    host.send(1)
    host.advance(300)
    host.purge("purged")
    host.advance(50)
    host.send(1)
    host.advance(5)
    host.receive(1)
    groups = [host.topic.group(name) for name in ("default", "late", "purged")]
    found = oldest_due_ms(host.engine.state, groups)
    assert [host.now_ms - due_ms for due_ms in found] == [355, 355, 5]


def test_a_sample_of_very_many(host: Any, monkeypatch: Any) -> None:
    """Purpose: a scrape costs the same however much is ready. Method: messages of two hours, more
    than are sampled. The sample is of the older hour; an eighth of a minute lies between two."""
    monkeypatch.setattr(module, "SAMPLE_REFS", 16)
    host.configure(order="priority")
    start_ms = host.now_ms
    host.send(200, delay=[n * 1_000 for n in range(200)], priority=[n % 200 for n in range(200)])
    host.send(200, delay=HOUR, priority=250)
    host.advance(HOUR)
    assert start_ms <= host.now_ms - oldest(host) <= start_ms + 13_000


@pytest.mark.parametrize("seed", range(tries(8)))
def test_of_many_groups(host: Any, seed: int, monkeypatch: Any) -> None:
    """Purpose: the least of all groups is found however few of them are looked into. Method: topics
    of several hours and orders, in which first messages have ended, added in random parts."""
    random = Random(seed)
    monkeypatch.setattr(module, "GROUPS_AT_ONCE", random.choice((1, 2, 8)))
    for number in range(20):
        host.topic_name = f"t{number}"
        if random.random() < 0.3:
            host.configure(order="priority")
        for _ in range(random.randrange(4)):
            ids = [f"{number}-{host.now_ms}-{n}" for n in range(random.randrange(1, 4))]
            host.send(len(ids), ids=ids, priority=[random.randrange(3) for _ in ids])
            host.advance(random.choice((1, 100, HOUR)))
            if random.random() < 0.6:
                host.cancel(ids[: random.randrange(len(ids) + 1)])
    state = host.engine.state
    groups = [group for topic in state.by_number.values() for group in topic.groups.values()]
    random.shuffle(groups)
    oldest, seen = OldestDue(), list[int]()
    for at, group in enumerate(groups):
        if group.made_ready is not None:
            ready, parked = group.ready, group.gate.parked
            living, front = ready.living_and_front(parked, FRONT_REFS)
            assert living == ready.living
            assert [*map(list, front)] == [*map(list, ready.in_memory(FRONT_REFS))]
            if front:
                oldest.add(group, front)
        seen += [due for due in oldest_due_ms(state, [group]) if due is not None]
        if random.random() < 0.3 or at == len(groups) - 1:
            oldest.look(state)
            assert oldest.due_ms == min(seen, default=None)


def test_behind_a_row_that_was_removed(host: Any) -> None:
    """The ref of an ended message stays in front when the folder of its hour has gone."""
    host.configure(ended_keep_ms=0)
    host.send(1, ids=["gone"])
    host.advance(10)
    host.cancel(["gone"])
    host.advance(2 * HOUR)
    host.send(1)
    host.advance(300)
    for _ in range(3):
        host.checkpoint()
    state, group = host.engine.state, host.topic.default
    (front,) = group.ready.in_memory(1)
    assert not state.hours.known(front).any()
    sought = OldestDue()
    sought.add(group, [front])
    sought.look(state)
    assert sought.due_ms is not None
    assert host.now_ms - sought.due_ms == oldest(host) == 300


@pytest.mark.parametrize("seed", range(tries(8)))
def test_as_a_list_tells(host: Any, seed: int, monkeypatch: Any) -> None:
    """Against the states of all messages, after random sends, receives, failures and cancels.

    A queue in order of release may tell a message that is a little younger: FRONT_REFS covers it.
    """
    random = Random(seed)
    monkeypatch.setattr(module, "FRONT_REFS", 10_000)
    host.configure(order=random.choice(("time", "priority")))
    sent: list[str] = []
    for _ in range(60):
        what = random.randrange(6)
        if what < 2:
            ids = [f"{len(sent) + n}" for n in range(random.randrange(1, 8))]
            host.send(
                len(ids),
                ids=ids,
                keys=[random.choice(("", "k", "l")) for _ in ids],
                priority=[random.randrange(3) for _ in ids],
                delay=[random.choice((0, 40, HOUR)) for _ in ids],
            )
            sent += ids
        elif what == 2:
            host.advance(random.choice((1, 100, HOUR)))
        elif what == 3 and sent:
            host.cancel(random.choices(sent, k=3))
        else:
            got = host.receive(random.randrange(1, 6), lease=random.choice((50, 9 * HOUR)))
            random.choice((host.ack, lambda got: host.nack(got, 0), lambda got: None))(got)
        found = [each for each in host.find(sent) if each is not None]
        ready = [int(each.row["deliver_at"]) for each in found if each.state is MessageState.READY]
        told = oldest(host)
        assert (None if told is None else host.now_ms - told) == min(ready, default=None)

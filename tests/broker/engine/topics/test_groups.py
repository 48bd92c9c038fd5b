"""Groups and floors: who sees what, what a purge leaves, and that counts follow."""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.engine.control import changes as control
from delaylog.broker.engine.control.changes import in_groups
from delaylog.broker.engine.errors import ConflictError
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.storage.layout import HOUR_MS, MessageState


def test_a_dropped_group_holds_nothing_back(host: Any) -> None:
    host.put_group("a")
    host.send(5)
    host.ack(host.receive())
    held = host.receive(2, group="a")
    hour = host.now_ms // HOUR_MS
    assert host.engine.state.hours.counts[hour].living == 5
    host.drop_group("a")
    assert host.engine.state.hours.counts[hour].living == 0
    assert host.ack(held) == 0, "its leases are gone"
    assert host.topic.group("a") is None
    host.recount()
    host.restart()
    assert host.topic.group("a") is None
    again = host.put_group("a")
    assert again.number == 3, "a number is never used again"
    assert host.receive(group="a") == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_retry_of_a_dropped_group_comes_to_nobody(host: Any, restarted: bool) -> None:
    """Its row outlives the group, and the topic has only the default group again."""
    host.put_group("a")
    host.send([b"x"])
    host.nack(host.receive(group="a"), 500)
    host.drop_group("a")
    host.ack(host.receive())
    if restarted:
        host.restart()
        host.send([b"y"], delay=500)
    host.advance(500)
    assert host.bodies() == [b"y"] * restarted
    host.recount()


def test_only_named_groups_see_what_is_sent(host: Any) -> None:
    host.send([b"old"])
    host.configure(default_group=False)
    assert host.topic.group("default") is None
    host.send([b"nobody"])
    host.put_group("a")
    host.send([b"one"])
    host.recount()
    host.restart()
    assert host.bodies(group="a") == [b"one"]
    host.configure(default_group=True)
    host.send([b"two"])
    assert host.bodies() == [b"two"], "it sees what is sent after it came back"
    host.recount()


def test_without_any_group_there_is_nothing_to_control(host: Any) -> None:
    ids = host.ids_of(host.send([b"x"], delay=1_000))
    host.configure(default_group=False)
    state, now_ms = host.engine.state, host.now_ms
    moved = in_groups(
        host.topic,
        lambda group: find_ids(state, host.topic, ids, now_ms, group),
        lambda found: control.reschedule(state, host.topic, found, now_ms, deliver_at_ms=now_ms),
    )
    assert moved.result.codes.tolist() == [control.UNKNOWN]
    host.recount()


def test_the_default_group_is_not_dropped_by_name(host: Any) -> None:
    with pytest.raises(ConflictError):
        host.drop_group("default")


def test_a_purge_ends_what_waits_and_what_is_ready(host: Any) -> None:
    sent = host.send(20, delay=[0] * 5 + [5_000] * 5 + [2 * HOUR_MS] * 10)
    assert host.purge() == 20
    assert host.bodies() == []
    assert host.state_of(host.ids_of(sent)[0]) is MessageState.CANCELLED
    host.send([b"new"], delay=5_000)
    host.advance(5_000)
    assert host.bodies(lease=3 * HOUR_MS) == [b"new"]
    host.advance(2 * HOUR_MS)
    assert host.bodies() == []
    assert host.topic.default.counts.cancelled == 20
    assert host.topic.default.counts.living == 1
    host.restart()
    assert host.topic.default.counts.cancelled == 20
    host.advance(2 * HOUR_MS)
    assert host.bodies() == [b"new"]


def test_a_purge_leaves_what_is_under_lease(host: Any) -> None:
    host.configure(backoff={"first_ms": 0})
    host.send(6)
    held = host.receive(3)
    assert host.purge() == 3
    assert host.nack(held[:1], 0) == 1
    assert host.nack(held[1:2], 1_000) == 1
    assert [m.body for m in host.receive()] == [b"0"], "what came back lives on"
    host.advance(1_000)
    moved = host.receive()
    assert [m.body for m in moved] == [b"1"]
    host.restart()
    host.nack(moved, 0)
    assert host.purge() == 1, "a second purge ends what came back after the first"
    assert host.bodies() == []
    host.advance(60_000)
    assert sorted(host.bodies()) == [b"0", b"2"], "these were under lease both times"
    host.advance(60_000)
    assert sorted(host.bodies()) == [b"0", b"2"]
    host.recount()


def test_a_topic_that_is_dropped_takes_all_with_it(host: Any) -> None:
    host.put_group("a")
    host.send(4, delay=[0, 0, 90_000, 90_000])
    hours = host.engine.state.hours.counts
    host.drop_topic()
    host.turn()
    assert all(counts.living == 0 for _, counts in hours.items())
    host.restart()
    assert host.bodies() == []
    host.advance(90_000)
    assert host.bodies() == []
    host.send([b"anew"])
    assert host.bodies() == [b"anew"]


def test_hours_go_once_a_purge_has_emptied_them(host: Any) -> None:
    host.configure(ended_keep_ms=0)
    host.send(10, delay=1_000)
    host.advance(1_000)
    host.nack(host.receive(2), 5_000)
    host.purge()
    host.advance(3 * HOUR_MS)
    for _ in range(3):
        host.send([b"x"])
        host.ack(host.receive())
        host.checkpoint()
    first = min(host.engine.state.hours.counts)
    assert first >= host.now_ms // HOUR_MS - 1

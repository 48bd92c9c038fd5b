"""Groups and floors: who sees what, what a purge leaves, and that counts follow."""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.engine import changes
from delaylog.broker.engine.changes import in_groups
from delaylog.broker.engine.errors import ConflictError
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.storage.layout import HOUR_MS


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


def test_without_any_group_there_is_nothing_to_control(host: Any) -> None:
    ids = host.ids_of(host.send([b"x"], delay=1_000))
    host.configure(default_group=False)
    state, now_ms = host.engine.state, host.now_ms
    moved = in_groups(
        host.topic,
        lambda group: find_ids(state, host.topic, ids, now_ms, group),
        lambda found: changes.reschedule(state, host.topic, found, now_ms, deliver_at_ms=now_ms),
    )
    assert moved.result.codes.tolist() == [changes.UNKNOWN]
    host.recount()


def test_the_default_group_is_not_dropped_by_name(host: Any) -> None:
    with pytest.raises(ConflictError):
        host.drop_group("default")


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

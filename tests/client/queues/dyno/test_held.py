"""Held: the newest delivery of an id counts, and memory has a bound."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from delaylog.client.message import LeasedMessage
from delaylog.client.queues import DynoMessage, DynoQueue
from delaylog.client.queues.dyno_shards import Held


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

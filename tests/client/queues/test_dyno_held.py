"""Held: the newest delivery of an id counts, and memory has a bound."""

from __future__ import annotations

from delaylog.client import Client
from delaylog.client.message import Message
from delaylog.client.queues import DynoMessage, DynoQueue
from delaylog.client.queues.dyno.held import Held


def deliveries(client: Client, name: str, count: int) -> list[Message]:
    """Of the messages 0, 1, …, in that order."""
    queue = DynoQueue(client, name)
    for n in range(count):
        queue.push([DynoMessage(str(n), priority=n)])
    received: list[Message] = []
    while len(received) < count:
        received += client.receive(name, max=count, wait_ms=1_000)
    return sorted(received, key=lambda message: int(message.id))


def test_the_newest_delivery_of_an_id_counts(client: Client, name: str) -> None:
    held = Held()
    [old] = deliveries(client, name, 1)
    client.extend(old, lease_ms=0)
    [new] = client.receive(name, wait_ms=1_000)
    held.keep("a", [old])
    held.keep("b", [new])
    assert held.find("0") == ("b", new)
    held.drop("0", old)
    assert held.find("0") == ("b", new), "the older one was settled"
    held.drop("0", new)
    assert held.find("0") is None
    held.drop("0", new)


def test_the_newest_are_remembered(client: Client, name: str) -> None:
    held = Held(held_max=3)
    messages = deliveries(client, name, 6)
    held.keep("a", messages[:3])
    held.keep("a", messages[:1])
    held.keep("a", messages[3:5])
    assert [n for n in range(6) if held.find(str(n))] == [0, 3, 4]
    assert len(held) == 3
    held.clear()
    assert len(held) == 0

"""Channels: what is published reaches each subscriber in order, by pushes in RESP3 as in RESP2."""

from __future__ import annotations

import threading
import time
from typing import Any

import redis

from tests.redis.servers import TIMEOUT_S, RedisServer


def next_message(pubsub: redis.client.PubSub) -> dict[str, Any]:
    """The next message of any kind; fails when there is none for long."""
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        message = pubsub.get_message(timeout=1)
        if message is not None:
            return message
    raise AssertionError("no message came")


def summary(message: dict[str, Any]) -> tuple[Any, ...]:
    """Kind, pattern, channel, data."""
    return message["type"], message["pattern"], message["channel"], message["data"]


def test_channels_and_patterns(client: redis.Redis) -> None:
    with client.pubsub() as pubsub:
        pubsub.subscribe("news", "sport")
        pubsub.psubscribe("n*")
        assert [summary(next_message(pubsub)) for _ in range(3)] == [
            ("subscribe", None, "news", 1),
            ("subscribe", None, "sport", 2),
            ("psubscribe", None, "n*", 3),
        ]
        assert client.publish("news", "one") == 2
        assert client.publish("nothing", "two") == 1
        assert client.publish("unheard", "three") == 0
        got = sorted(summary(next_message(pubsub)) for _ in range(2))
        assert got == [("message", None, "news", "one"), ("pmessage", "n*", "news", "one")]
        assert summary(next_message(pubsub)) == ("pmessage", "n*", "nothing", "two")
        assert client.pubsub_channels() in (["news", "sport"], ["sport", "news"])
        assert client.pubsub_numpat() == 1
        pubsub.unsubscribe("news")
        assert summary(next_message(pubsub)) == ("unsubscribe", None, "news", 2)
        pubsub.punsubscribe()
        assert summary(next_message(pubsub)) == ("punsubscribe", None, "n*", 1)
        assert client.publish("news", "late") == 0
        assert client.publish("sport", "goal") == 1
        assert summary(next_message(pubsub)) == ("message", None, "sport", "goal")


def test_many_messages_come_in_order_to_everyone(
    endpoint: RedisServer, wire: dict[str, Any]
) -> None:
    count = 2000
    got: list[list[int]] = [[], [], []]
    ready = threading.Barrier(len(got) + 1)

    def listen(index: int) -> None:
        with endpoint.client(**wire) as client, client.pubsub() as pubsub:
            pubsub.subscribe("ticks")
            assert next_message(pubsub)["type"] == "subscribe"
            ready.wait(TIMEOUT_S)
            while len(got[index]) < count:
                got[index].append(int(next_message(pubsub)["data"]))

    listeners = [threading.Thread(target=listen, args=(index,)) for index in range(len(got))]
    for listener in listeners:
        listener.start()
    ready.wait(TIMEOUT_S)
    with endpoint.client(**wire) as client, client.pipeline(transaction=False) as pipe:
        for number in range(count):
            pipe.publish("ticks", number)
        assert pipe.execute() == [len(got)] * count
    for listener in listeners:
        listener.join(TIMEOUT_S)
    assert got == [list(range(count))] * len(got)


def test_a_subscriber_may_ping(client: redis.Redis) -> None:
    with client.pubsub() as pubsub:
        pubsub.subscribe("c")
        next_message(pubsub)
        pubsub.ping()
        client.publish("c", "after it")
        # redis-py makes nothing sensible of the PONG of RESP3, which is no push.
        assert next_message(pubsub)["data"] != "after it"
        assert next_message(pubsub)["data"] == "after it"


def test_messages_wait_for_the_end_of_a_transaction(client: redis.Redis) -> None:
    with client.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.subscribe("done")
        pubsub.get_message(timeout=TIMEOUT_S)
        with client.pipeline() as pipe:
            assert pipe.set("k", 1).publish("done", "k").execute() == [True, 1]
        assert next_message(pubsub)["data"] == "k"
        assert client.get("k") == "1"

"""The kombu transport with a real broker: what kombu asks of a transport, and what is ours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import kombu
import pytest
from kombu.asynchronous import Hub

from delaylog.client import Client, NotReached, TopicSettings
from delaylog.client._sync.message import Message
from delaylog.client.child_broker import free_port
from delaylog.client.job_systems import kombu_bindings, register_kombu_transport
from delaylog.client.job_systems.kombu_channel import (
    body_of,
    due_ms,
    fields_of,
    payload_of,
    task_id_of,
)
from tests.waiting import await_that

WAIT_S = 60


@pytest.fixture(autouse=True)
def _registered() -> None:
    register_kombu_transport()


@pytest.fixture
def connection(url: str) -> Iterator[kombu.Connection]:
    with kombu.Connection(url) as connection:
        yield connection


class Taker:
    """A consumer, and the bodies that it got. Without `ack` it leaves messages unacknowledged."""

    def __init__(
        self,
        connection: kombu.Connection,
        *queues: kombu.Queue,
        ack: bool = True,
        prefetch: int = 0,
    ) -> None:
        self.bodies: list[Any] = []
        self.messages: list[Any] = []
        self.connection = connection
        self.ack = ack
        channel = connection.channel()
        self.consumer = kombu.Consumer(
            channel, queues, callbacks=[self.take], accept=["json", "pickle", "text/plain"]
        )
        if prefetch:
            self.consumer.qos(prefetch_count=prefetch)
        self.consumer.consume()

    def take(self, body: Any, message: Any) -> None:
        self.bodies.append(body)
        self.messages.append(message)
        if self.ack:
            message.ack()

    def drain(self, count: int) -> list[Any]:
        """The bodies, once there are so many."""
        while len(self.bodies) < count:
            self.connection.drain_events(timeout=WAIT_S)
        return self.bodies

    def is_idle(self, seconds: float = 0.5) -> bool:
        """Whether nothing comes."""
        try:
            self.connection.drain_events(timeout=seconds)
        except TimeoutError:
            return True
        return False


def publish(connection: kombu.Connection, body: Any, queue: kombu.Queue, **options: Any) -> None:
    producer = kombu.Producer(connection.default_channel)
    # Without a named exchange the routing key is the queue.
    options.setdefault("routing_key", queue.routing_key or queue.name)
    options.setdefault("exchange", queue.exchange)
    producer.publish(body, declare=[queue], **options)


def test_bodies_headers_and_serializers_arrive(connection: kombu.Connection) -> None:
    queue = kombu.Queue("serializers")
    taker = Taker(connection, queue)
    publish(connection, {"a": "ä"}, queue, headers={"k": "v"})
    publish(connection, {"a": b"\xff"}, queue, serializer="pickle")
    publish(connection, "x" * 10_000, queue, compression="gzip")
    assert taker.drain(3) == [{"a": "ä"}, {"a": b"\xff"}, "x" * 10_000]
    assert taker.messages[0].headers == {"k": "v"}


def test_what_is_rejected_is_a_dead_letter_and_what_is_requeued_comes_again(
    connection: kombu.Connection, client: Client
) -> None:
    """A requeue counts as an attempt, and waits for the topic's backoff."""
    backoff = {"first_ms": 500, "jitter": 0}
    client.put_topic("settling", TopicSettings("priority", backoff=backoff))
    queue = kombu.Queue("settling")
    taker = Taker(connection, queue, ack=False)
    publish(connection, 1, queue)
    taker.drain(1)
    begin = time.monotonic()
    taker.messages[0].requeue()
    taker.drain(2)
    assert time.monotonic() - begin >= 0.4
    assert taker.messages[1].delivery_info["redelivered"]
    taker.messages[1].reject(requeue=False)
    assert taker.is_idle()
    assert [each.attempts for each in client.dead("settling")] == [2]


def test_what_is_requeued_more_often_than_the_topic_allows_is_a_dead_letter(
    connection: kombu.Connection, client: Client
) -> None:
    """What was polled or recovered comes again at once and does not count: nobody began it."""
    client.put_topic("poison", TopicSettings(max_retry=1, backoff={"first_ms": 0}))
    queue = kombu.Queue("poison")
    publish(connection, 1, queue)
    for _ in range(3):
        queue(connection.default_channel).get().requeue()
    taker = Taker(connection, queue, ack=False)
    for count in (1, 2, 3):
        taker.drain(count)
        taker.consumer.recover(requeue=True)
    for count in (4, 5):
        taker.drain(count)
        taker.messages[-1].requeue()
    assert taker.is_idle()
    assert [each.attempts for each in client.dead("poison")] == [2]


def test_queues_of_connections_that_have_ended_are_removed(
    url: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that delete themselves, with what nobody has read; another connection does it.

    The topic of a queue that the program has named stays: it may be of other programs too.
    """
    monkeypatch.setattr(kombu_bindings, "TRANSIENT", timedelta(milliseconds=3_000))
    news = kombu.Exchange("news", type="fanout", durable=False)
    names = [f"gone.{uuid4()}", "here", "stays"]
    gone, here, stays = (kombu.Queue(name, news, auto_delete=True, durable=False) for name in names)
    with kombu.Connection(url, transport_options={"lease_ms": 600}) as staying:
        here(staying.default_channel).declare()
        with kombu.Connection(url) as ending:
            gone(ending.default_channel).declare()
            stays(ending.default_channel).declare()
            publish(ending, "hello", here)

        def topics() -> list[str]:
            return [topic.topic for topic in client.topics()]

        assert topics() == [names[0], "here", "kombu.bindings", "stays"]
        await_that(lambda: topics() == ["here", "kombu.bindings", "stays"])
        assert client.stats("here").counts.ready == 1


def test_no_ack_ends_a_message_with_its_delivery(
    connection: kombu.Connection, client: Client
) -> None:
    queue = kombu.Queue("no-ack")
    publish(connection, 1, queue)
    publish(connection, 2, queue)
    assert queue(connection.default_channel).get(no_ack=True).payload == 1
    channel = connection.channel()
    bodies: list[Any] = []
    with kombu.Consumer(channel, [queue], callbacks=[lambda b, _: bodies.append(b)], no_ack=True):
        connection.drain_events(timeout=WAIT_S)
    assert bodies == [2]
    assert client.stats("no-ack").counts.acked == 2


def test_a_channel_holds_no_more_than_its_prefetch_count(
    connection: kombu.Connection, client: Client
) -> None:
    """Over all its queues. The rest stays in the broker, for other consumers."""
    queues = [kombu.Queue("some"), kombu.Queue("more")]
    for queue in queues:
        for number in range(5):
            publish(connection, number, queue)
    taker = Taker(connection, *queues, ack=False, prefetch=3)
    taker.drain(3)

    def leased() -> int:
        return sum(client.stats(queue.name).counts.leased for queue in queues)

    await_that(lambda: leased() == 3)
    assert taker.is_idle()
    taker.messages[0].ack()
    taker.drain(4)
    assert taker.is_idle()
    await_that(lambda: leased() == 3)


def test_what_a_closed_connection_held_is_ready_at_once(url: str, client: Client) -> None:
    queue = kombu.Queue("closing")
    with kombu.Connection(url, transport_options={"lease_ms": 600_000}) as connection:
        for number in range(3):
            publish(connection, number, queue)
        Taker(connection, queue, ack=False).drain(1)
    counts = client.stats("closing").counts
    assert (counts.ready, counts.leased) == (3, 0)
    (again, *_) = client.receive("closing")
    assert again.attempts == 1


def test_a_lease_is_extended_for_as_long_as_a_message_is_unacknowledged(
    url: str, client: Client
) -> None:
    queue = kombu.Queue("long")
    with kombu.Connection(url, transport_options={"lease_ms": 3_000}) as connection:
        publish(connection, 1, queue)
        taker = Taker(connection, queue, ack=False)
        taker.drain(1)
        time.sleep(7)
        assert client.receive("long") == []
        taker.messages[0].ack()
        assert client.stats("long").counts.acked == 1


def test_the_highest_priority_is_delivered_first_also_after_a_requeue(
    connection: kombu.Connection, client: Client
) -> None:
    """Among ready messages: a receive may miss one that became due milliseconds ago."""
    queue = kombu.Queue("priorities", max_priority=10)
    for body, priority in [("a", 3), ("b", 6), ("c", 3)]:
        publish(connection, body, queue, priority=priority)
    await_that(lambda: client.stats("priorities").counts.ready == 3)
    taker = Taker(connection, queue, ack=False)
    assert taker.drain(3) == ["b", "a", "c"]
    taker.consumer.channel.close()
    publish(connection, "d", queue, priority=9)
    await_that(lambda: client.stats("priorities").counts.ready == 4)
    assert Taker(connection, queue).drain(4) == ["d", "b", "a", "c"]


def test_sizes_purges_and_deletes(connection: kombu.Connection, client: Client) -> None:
    with closing(connection.SimpleQueue("counted")) as queue:
        for number in range(3):
            queue.put(number)
        assert queue.qsize() == 3
        assert queue.clear() == 3
        assert queue.qsize() == 0
    channel = connection.default_channel
    channel.queue_delete("counted")
    assert "counted" not in [topic.topic for topic in client.topics()]
    with pytest.raises(connection.channel_errors):
        channel.queue_declare("counted", passive=True)
    kombu.Queue("counted")(channel).declare()
    assert channel.queue_declare("counted", passive=True).message_count == 0


@pytest.mark.parametrize(
    ("kind", "binding", "sent", "matches"),
    [
        ("direct", "a.b", "a.b", True),
        ("direct", "a.b", "a.c", False),
        ("topic", "a.*", "a.b", True),
        ("topic", "a.*", "b.a", False),
        ("fanout", "", "x", True),
    ],
)
def test_exchanges_reach_queues_that_other_processes_have_bound(
    url: str, kind: str, binding: str, sent: str, matches: bool
) -> None:
    exchange = kombu.Exchange(f"of-{kind}", type=kind)
    queues = [kombu.Queue(name, exchange, routing_key=binding) for name in ("q@1", "q@2")]
    with kombu.Connection(url) as binder:
        for queue in queues:
            queue(binder.default_channel).declare()
    with kombu.Connection(url) as connection:
        producer = kombu.Producer(connection.default_channel, exchange)
        producer.publish("hello", routing_key=sent)
        sizes = [connection.default_channel._size(queue.name) for queue in queues]
    assert sizes == [int(matches)] * 2


def test_a_queue_that_is_deleted_by_another_connection_gets_nothing_more(
    url: str, client: Client
) -> None:
    exchange = kombu.Exchange("of-deleted", type="fanout")
    with kombu.Connection(url) as binder:
        kombu.Queue("deleted", exchange)(binder.default_channel).declare()
    with kombu.Connection(url) as connection:
        connection.default_channel.queue_delete("deleted")
        kombu.Producer(connection.default_channel).publish("hello", exchange=exchange)
    assert "deleted" not in [topic.topic for topic in client.topics()]


def test_a_topic_that_exists_keeps_its_settings(
    connection: kombu.Connection, client: Client
) -> None:
    client.put_topic("made", TopicSettings(max_retry=1))
    publish(connection, 1, kombu.Queue("made"))
    publish(connection, 1, kombu.Queue("new"))
    settings = client.get_topic("made").settings
    assert (settings.order, settings.max_retry) == ("time", 1)
    assert client.get_topic("new").settings.order == "priority"


@pytest.mark.parametrize(
    "body",
    [
        "not of kombu",
        "[" * 200_000,
        '{"body": "x", "properties": {"body_encoding": "rot13"}}',
        '{"body": 5, "properties": {"body_encoding": "base64"}}',
        '{"body": {"__type__": "decimal", "__value__": "x"}, "properties": {}}',
    ],
    ids=["text", "deep", "unknown encoding", "no base64", "no decimal"],
)
def test_a_message_of_another_program_does_not_stop_the_consumer(
    connection: kombu.Connection, client: Client, body: str
) -> None:
    queue = kombu.Queue("mixed")
    foreign = client.send("mixed", body).id
    publish(connection, 1, queue)
    assert Taker(connection, queue).drain(1) == [1]
    await_that(lambda: [each.id for each in client.dead("mixed")] == [foreign])


def test_a_message_whose_consumer_fails_becomes_a_dead_letter(url: str, client: Client) -> None:
    """A program that such a message ends is started again and again, but not forever."""
    client.put_topic("failing", TopicSettings(max_retry=1, backoff={"first_ms": 0, "jitter": 0}))
    queue = kombu.Queue("failing")
    with kombu.Connection(url) as connection:
        publish(connection, 1, queue)
    for _ in range(2):
        with kombu.Connection(url) as connection, pytest.raises(ZeroDivisionError):
            Failing(connection, queue).drain(1)
    assert [each.attempts for each in client.dead("failing")] == [2]


def test_an_acked_message_stays_acked_when_its_consumer_fails(url: str, client: Client) -> None:
    queue = kombu.Queue("failing")
    with kombu.Connection(url) as connection:
        publish(connection, 1, queue)
    with kombu.Connection(url) as connection, pytest.raises(ZeroDivisionError):
        Failing(connection, queue, ack=True).drain(1)
    assert client.stats("failing").counts.acked == 1


def test_the_event_loop_of_a_worker_outlives_a_message_whose_consumer_fails(
    url: str, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Celery fails so with a message that another program made: the next ones are delivered."""
    client.put_topic("failing", TopicSettings(max_retry=0))
    queue, hub = kombu.Queue("failing"), Hub()
    with kombu.Connection(url) as connection:
        taker = Failing(connection, queue, fails_with=1)
        connection.register_with_event_loop(hub)
        for number in (1, 2):
            publish(connection, number, queue)
        await_that(lambda: hub.run_once() or taker.bodies == [1, 2], seconds=WAIT_S)
        hub.close()
    assert [each.attempts for each in client.dead("failing")] == [1]
    assert "of queue failing could not be begun" in caplog.text


class Failing(Taker):
    """A consumer that raises an error, with one body or with all."""

    def __init__(
        self,
        connection: kombu.Connection,
        queue: kombu.Queue,
        *,
        ack: bool = False,
        fails_with: Any = None,
    ) -> None:
        super().__init__(connection, queue, ack=ack)
        self.fails_with = fails_with

    def take(self, body: Any, message: Any) -> None:
        super().take(body, message)
        if self.fails_with in (None, body):
            raise ZeroDivisionError(body)


def test_a_broker_that_is_away_is_a_connection_error() -> None:
    away = kombu.Connection(f"delaylog://127.0.0.1:{free_port()}")
    with pytest.raises(NotReached) as caught:
        away.connect()
    assert isinstance(caught.value, away.connection_errors)


def test_a_url_is_an_address_a_token_and_a_namespace() -> None:
    login = "someone:token"
    with pytest.raises(ValueError, match="has no user: write delaylog://:TOKEN@host"):
        kombu.Connection(f"delaylog://{login}@127.0.0.1").connect()
    tls = kombu.Connection("delaylogs://:token@127.0.0.1:1/ns", transport_options={"ca_file": "/-"})
    with pytest.raises(ValueError, match="/-"):
        tls.connect()
    assert "token" not in tls.as_uri()


# Kombu's messages as messages of a topic, and back. No broker is needed.


def payload(headers: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {"body": "[]", "headers": headers, "properties": {"delivery_info": {}, **properties}}


def delivered(sent: dict[str, Any], attempts: int = 1) -> dict[str, Any]:
    message = SimpleNamespace(text=body_of(sent), receipt="r1", attempts=attempts)
    return payload_of(cast(Message, message))


@pytest.mark.parametrize(
    ("eta", "due"),
    [
        ("1970-01-01T00:00:01+00:00", 1_000),
        ("1970-01-01T01:00:01.000001+01:00", 1_001),
        ("1969-01-01T00:00:00+00:00", 0),
        ("2026-01-01T00:00:00", None),
        ("tomorrow", None),
        (None, None),
    ],
)
def test_an_eta_with_a_time_zone_is_a_due_time_and_never_early(
    eta: str | None, due: int | None
) -> None:
    assert due_ms({"eta": eta}) == due


@pytest.mark.parametrize(
    ("eta", "seen"),
    [("1970-01-01T00:00:01+00:00", None), ("2026-01-01T00:00:00", "2026-01-01T00:00:00")],
)
def test_the_worker_waits_only_for_what_the_broker_did_not(eta: str, seen: str | None) -> None:
    assert delivered(payload({"eta": eta}))["headers"]["eta"] == seen


def test_a_task_is_found_by_its_id_and_name() -> None:
    message = payload({"task": "app.add", "id": "17"}, priority=20, expiration="1500")
    assert fields_of(message) == {"tags": ["app.add"], "priority": 9, "ttl": timedelta(seconds=1.5)}
    assert task_id_of(message) == "17"
    assert task_id_of(payload({"id": "no task"})) is None


def test_what_cannot_be_a_field_is_left_out() -> None:
    assert fields_of(payload({"task": "x" * 65, "id": "y" * 256}, priority=None)) == {"tags": []}
    assert fields_of(payload({"id": "no task"}, priority=-1)) == {}


def test_a_delivery_has_its_own_tag_and_says_whether_it_is_the_first() -> None:
    first = delivered(payload({}, delivery_tag="of the sender"))
    assert first["properties"]["delivery_tag"] == "r1"
    assert first["properties"]["delivery_info"]["redelivered"] is False
    again = delivered(payload({}), attempts=2)
    assert again["properties"]["delivery_info"]["redelivered"] is True

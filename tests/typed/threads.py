"""What type checkers infer of Client; see test_typed. Nothing here is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, assert_type

from delaylog import (
    AnswerLost,
    ApiError,
    Changed,
    Client,
    Conflict,
    Counts,
    Forecast,
    GroupInfo,
    Message,
    MessageInfo,
    NewMessage,
    PlainClient,
    Reject,
    Retry,
    SendFailed,
    Sent,
    Settled,
    Shard,
    ShardsFailed,
    Stats,
    ThreadSending,
    Timer,
    TimerState,
    TooLate,
    TopicInfo,
    TopicSettings,
)
from delaylog.client._sync.surface import QueueClient


def made() -> None:
    assert_type(Client(), Client)
    assert_type(Client.from_env(namespace="north"), Client)
    assert_type(
        Client("http://127.0.0.1:8711", linger=timedelta(milliseconds=5)).shards, Sequence[Shard]
    )
    with Client() as client:
        assert_type(client, Client)
    Client(lingers_ms=5)  # type: ignore[call-arg]


def sent(client: Client, when: datetime) -> None:
    assert_type(client.send("mails", "hello", delay=timedelta(days=1)), Sent)
    assert_type(client.send("mails", b"hello", at=when, tags=["a"], headers={"a": "b"}), Sent)
    assert_type(client.send("mails", json={"to": 7}), Sent)
    assert_type(client.send("mails", "hello").deliver_at_ms, int)
    sending = client.send_soon("mails", "hello", delay=timedelta(milliseconds=500))
    assert_type(sending, ThreadSending)
    assert_type(sending.result(timeout=timedelta(seconds=1)), Sent)
    assert_type(sending.exception(), BaseException | None)
    assert_type(client.send_many("mails", ["a", b"b", NewMessage("c", id="c")]), list[Sent])
    client.send("mails", "hello", delay_ms=5)  # type: ignore[call-arg]
    client.send("mails", 5)  # type: ignore[arg-type]
    client.send("mails", "hello", delay=5)  # type: ignore[arg-type]


def received(client: Client) -> None:
    messages = client.receive(
        "mails", max=10, wait=timedelta(seconds=5), lease=timedelta(minutes=1)
    )
    assert_type(messages, list[Message])
    assert_type(client.ack(messages), list[Settled])
    assert_type(client.nack(messages[0], delay=timedelta(minutes=1), reason="busy"), list[Settled])
    assert_type(client.extend(messages, lease=timedelta(seconds=5)), list[Settled])
    assert_type(client.subscribe("mails", lease=timedelta(minutes=1)), Iterator[Message])
    for message in client.subscribe("mails"):
        with message:
            settled(message)
    client.receive("mails", wait_ms=5)  # type: ignore[call-arg]


def settled(message: Message) -> None:
    assert_type(message.body, bytes)
    assert_type(message.text, str)
    assert_type(message.json(), Any)
    assert_type(message.key, str | None)
    assert_type(message.tags, tuple[str, ...])
    assert_type(message.headers, Mapping[str, str])
    assert_type(message.attempts, int)
    assert_type(message.lease_lost, bool)
    assert_type(message.ack(), Settled)
    assert_type(message.nack(delay=timedelta(milliseconds=5), reason="busy"), Settled)
    assert_type(message.reject("poison"), Settled)
    assert_type(message.release(), Settled)
    assert_type(message.extend(lease=timedelta(minutes=1)), Settled)


def looked_at(client: Client) -> None:
    assert_type(client.get("mails", "7", life=True), MessageInfo)
    assert_type(client.peek("mails", max=5), list[MessageInfo])
    assert_type(client.browse("mails", state="waiting", tag="a"), Iterator[MessageInfo])
    assert_type(client.dead("mails", bodies=True), Iterator[MessageInfo])
    assert_type(next(client.dead("mails")).cause, str | None)
    assert_type(client.stats("mails"), Stats)
    assert_type(client.stats("mails").counts, Counts)
    assert_type(client.forecast("mails"), Forecast)


def changed(client: Client) -> None:
    assert_type(client.cancel("mails", "7"), Changed)
    assert_type(client.reschedule("mails", "7", delay=timedelta(hours=1)), Changed)
    assert_type(client.replay("mails", ["7"]), list[Changed])
    assert_type(client.put_topic("mails", TopicSettings(max_retry=3)), TopicInfo)
    assert_type(client.update_topic("mails", lease=timedelta(seconds=5)), TopicInfo)
    assert_type(client.topics(), list[TopicInfo])
    assert_type(client.put_group("mails", "audit"), GroupInfo)
    assert_type(client.groups("mails"), list[GroupInfo])
    assert_type(client.purge("mails"), int)
    assert_type(client.broker(), PlainClient)
    with client.transaction() as together:
        assert_type(together.stage("mails", ["a"]), int)
    client.update_topic("mails", leases_ms=5)  # type: ignore[call-arg]


def handled(client: Client) -> None:
    @client.consumer("mails", concurrency=4, time_limit=timedelta(seconds=5))
    def deliver(message: Message) -> str:
        if message.attempts > 3:
            raise Reject("too often")
        raise Retry(delay=timedelta(minutes=1))

    @client.consumer("mails", batch_max=50)
    def deliver_all(messages: list[Message]) -> None:
        client.ack(messages)

    handler: Callable[[Message], str] = deliver
    print(handler)
    deliver(5)  # type: ignore[arg-type]
    deliver_all([])
    client.consumer("mails", workers=4)  # type: ignore[call-arg]


def called(client: Client) -> None:
    @client.task("mail-tasks", retries=5)
    def send_mail(user: str, template: str = "welcome") -> int:
        return len(user + template)

    assert_type(send_mail("ann"), int)
    assert_type(send_mail.send("ann", template="again"), Sent)
    assert_type(send_mail.send_in(timedelta(days=7), "ann"), Sent)
    assert_type(send_mail.having(priority=5).send("ann"), Sent)
    send_mail.send(7)  # type: ignore[arg-type]
    send_mail.send()  # type: ignore[call-arg]


def timed(client: Client) -> None:
    timer = client.timer("order-17")
    assert_type(timer, Timer)
    assert_type(timer.set(timedelta(minutes=30)), Sent)
    assert_type(timer.cancel(), TimerState)


def failed(client: Client) -> None:
    try:
        client.cancel("mails", "7")
    except TooLate as error:
        assert_type(error.state, str | None)
        conflict: Conflict = error
        assert_type(conflict.status, int)
    except ApiError as error:
        assert_type(error.code, str)
        assert_type(error.retry_after_s, float | None)
    except ShardsFailed as error:
        assert_type(error.not_asked, tuple[str, ...])
    except AnswerLost as error:
        elsewhere: ConnectionError = error
        print(elsewhere)
    try:
        client.flush(timeout=timedelta(seconds=5))
    except SendFailed as error:
        print(error.outcomes)


def takes_both(queue: QueueClient) -> None:
    assert_type(queue.send("mails", "hello"), Sent)
    assert_type(queue.receive("mails"), list[Message])
    assert_type(queue.browse("mails", state="waiting"), Iterator[MessageInfo])


takes_both(Client())

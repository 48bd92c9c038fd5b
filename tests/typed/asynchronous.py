"""What type checkers infer of AsyncClient; see test_typed. Nothing here is run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import assert_type

from delaylog import (
    AsyncClient,
    AsyncMessage,
    AsyncPlainClient,
    AsyncSending,
    AsyncTimer,
    Changed,
    GroupInfo,
    MessageInfo,
    NewMessage,
    Sent,
    Settled,
    Stats,
    TimerState,
    TopicInfo,
)
from delaylog.client._async.surface import AsyncQueueClient


async def made() -> None:
    async with AsyncClient("http://127.0.0.1:8711", namespace="north") as client:
        assert_type(client, AsyncClient)
    assert_type(AsyncClient.from_env(), AsyncClient)
    AsyncClient(lingers_ms=5)  # type: ignore[call-arg]


async def sent(client: AsyncClient) -> None:
    assert_type(await client.send("mails", "hello", delay=timedelta(days=1)), Sent)
    assert_type(await client.send("mails", json=[1, 2]), Sent)
    sending = client.send_soon("mails", "hello")
    assert_type(sending, AsyncSending)
    assert_type(await sending, Sent)
    assert_type(await client.send_many("mails", ["a", NewMessage("b")]), list[Sent])
    await client.send("mails", "hello", delay_ms=5)  # type: ignore[call-arg]


async def received(client: AsyncClient) -> None:
    messages = await client.receive("mails", max=10, lease=timedelta(minutes=1))
    assert_type(messages, list[AsyncMessage])
    assert_type(await client.ack(messages), list[Settled])
    assert_type(await messages[0].nack(delay=timedelta(milliseconds=5)), Settled)
    assert_type(messages[0].text, str)
    assert_type(client.subscribe("mails"), AsyncIterator[AsyncMessage])
    async for message in client.subscribe("mails"):
        async with message:
            assert_type(await message.extend(lease=timedelta(milliseconds=5)), Settled)


async def looked_at(client: AsyncClient) -> None:
    assert_type(await client.get("mails", "7"), MessageInfo)
    assert_type(client.browse("mails", key="7"), AsyncIterator[MessageInfo])
    assert_type([letter async for letter in client.dead("mails")], list[MessageInfo])
    assert_type(await client.stats("mails"), Stats)


async def changed(client: AsyncClient) -> None:
    assert_type(await client.cancel("mails", "7"), Changed)
    assert_type(await client.reschedule("mails", "7", delay=timedelta(milliseconds=5)), Changed)
    assert_type(await client.update_topic("mails", max_retry=5), TopicInfo)
    assert_type(await client.put_group("mails", "audit"), GroupInfo)
    assert_type(client.broker(), AsyncPlainClient)
    async with client.transaction() as together:
        assert_type(await together.stage("mails", ["a"]), int)


async def handled(client: AsyncClient) -> None:
    @client.consumer("mails", group="audit")
    async def deliver(message: AsyncMessage) -> int:
        return len(message.body)

    async def called(message: AsyncMessage) -> None:
        assert_type(await deliver(message), int)

    client.consumer("mails")(called)
    await client.start()
    await client.stop(grace=timedelta(seconds=5))


async def called(client: AsyncClient) -> None:
    @client.task("mail-tasks")
    async def send_mail(user: str) -> int:
        return len(user)

    assert_type(await send_mail("ann"), int)
    assert_type(await send_mail.send("ann"), Sent)
    await send_mail.send(7)  # type: ignore[arg-type]
    assert_type(client.timer("order-17"), AsyncTimer)
    assert_type(await client.timer("order-17").move(timedelta(hours=1)), TimerState)


async def takes_both(queue: AsyncQueueClient) -> None:
    assert_type(await queue.send("mails", "hello"), Sent)
    assert_type(await queue.receive("mails"), list[AsyncMessage])


async def given() -> None:
    await takes_both(AsyncClient())

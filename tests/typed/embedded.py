"""What type checkers infer of embedded brokers; see test_typed. Nothing here is run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import assert_type

import delaylog
from delaylog import AsyncMessage, Changed, ManualClock, Message, MessageInfo, Sent, Settled
from delaylog.broker.embedded import AsyncEmbeddedBroker, EmbeddedBroker, WallClock
from delaylog.client import AsyncQueueClient, QueueClient


def threads() -> None:
    assert_type(delaylog.open("folder"), EmbeddedBroker[WallClock])
    with delaylog.open("folder", clock=ManualClock(), fsync="never") as queue:
        assert_type(queue, EmbeddedBroker[ManualClock])
        assert_type(queue.clock.now, datetime)
        assert_type(queue.send("mails", "hello", delay=timedelta(days=1)), Sent)
        assert_type(queue.receive("mails"), list[Message])
        assert_type(queue.receive("mails")[0].ack(), Settled)
        assert_type(queue.subscribe("mails"), Iterator[Message])
        assert_type(queue.browse("mails", state="waiting"), Iterator[MessageInfo])
        assert_type(queue.cancel("mails", "7"), Changed)
        takes_both(queue)
        queue.send("mails", "hello", delay_ms=5)  # type: ignore[call-arg]

        @queue.consumer("mails")
        def deliver(message: Message) -> str:
            return message.text

        deliver(5)  # type: ignore[arg-type]
    delaylog.open("folder", fsinc="never")  # type: ignore[call-overload]


async def tasks() -> None:
    async with delaylog.open_async("folder", clock=ManualClock()) as queue:
        assert_type(queue, AsyncEmbeddedBroker[ManualClock])
        assert_type(await queue.send("mails", "hello"), Sent)
        assert_type(await queue.receive("mails"), list[AsyncMessage])
        assert_type(queue.subscribe("mails"), AsyncIterator[AsyncMessage])
        await takes_both_too(queue)


def takes_both(queue: QueueClient) -> None:
    assert_type(queue.ack(queue.receive("mails")), list[Settled])


async def takes_both_too(queue: AsyncQueueClient) -> None:
    assert_type(await queue.ack(await queue.receive("mails")), list[Settled])

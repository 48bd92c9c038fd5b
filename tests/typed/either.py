"""Programs that run on a client and on an embedded broker; see test_typed. Nothing here is run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, assert_type

import delaylog
from delaylog import (
    AsyncClient,
    AsyncMessage,
    AsyncQueueClient,
    AsyncTimer,
    Client,
    EmbeddedBroker,
    ManualClock,
    Message,
    QueueClient,
    Sent,
    Timer,
    TimerState,
    TopicInfo,
)


def shop(queue: QueueClient) -> None:
    """Timers, tasks, consumers, and what runs them."""
    assert_type(queue.timer("cart 7"), Timer)
    assert_type(queue.timer("cart 7").set(timedelta(minutes=30)), Sent)
    assert_type(queue.timer("cart 7").cancel(timeout=timedelta(seconds=5)), TimerState)

    @queue.consumer("timers", concurrency=2, on_error=lambda message, error: timedelta(seconds=1))
    def remind(message: Message) -> None:
        print(message.text)

    @queue.task("mails", on_error=delay_of)
    def mail(to: str) -> int:
        return len(to)

    assert_type(mail.send("ann"), Sent)
    assert_type(mail("ann"), int)
    assert_type(queue.send_soon("t", "x").result(timeout=timedelta(seconds=5)), Sent)
    queue.send_columns("t", ["x"], delay_ms=5)
    queue.pause("t")
    queue.resume("t")
    queue.forecast("t")
    queue.groups("t")
    queue.drop_group("t", "g")
    queue.settle_ids("t", "ack", ["7"])
    assert_type(queue.get_topic("t"), TopicInfo)
    with queue.transaction() as together:
        together.stage("t", ["x"])
    queue.broker().schedules("t")
    queue.flush(timeout=timedelta(seconds=5))
    queue.start()
    assert_type(queue.connected(), bool)
    queue.stop()
    queue.run()
    queue.close()


def delay_of(message: Message, error: BaseException) -> timedelta | None:
    return None


async def shop_later(queue: AsyncQueueClient) -> None:
    assert_type(queue.timer("cart 7"), AsyncTimer)

    @queue.consumer("timers", batch_max=50)
    async def remind(messages: list[AsyncMessage]) -> None:
        print(len(messages))

    @queue.task("mails")
    async def mail(to: str) -> None:
        print(to)

    assert_type(await mail.send("ann"), Sent)
    assert_type(await queue.send_soon("t", "x"), Sent)
    await queue.room()
    async with queue:
        await queue.start()
    await queue.close()


def wrong(queue: QueueClient, later: AsyncQueueClient) -> None:
    """Each of these fails at its first message, so that no handler would run."""

    def of_text(message: str) -> None: ...
    def of_nothing() -> None: ...
    def of_two(message: Message, more: int) -> None: ...
    def of_a_tuple(messages: tuple[Message, ...]) -> None: ...
    def of_another(message: AsyncMessage) -> None: ...
    async def of_threads(message: Message) -> None: ...

    queue.consumer("t")(of_text)  # type: ignore[type-var]
    queue.consumer("t")(of_nothing)  # type: ignore[type-var]
    queue.consumer("t")(of_two)  # type: ignore[type-var]
    queue.consumer("t")(of_a_tuple)  # type: ignore[type-var]
    queue.consumer("t")(of_another)  # type: ignore[type-var]
    later.consumer("t")(of_another)  # type: ignore[type-var]
    later.consumer("t")(of_threads)  # type: ignore[type-var]
    queue.consumer("t", on_error=of_text)  # type: ignore[arg-type]
    queue.consumer("t", on_error=lambda message, error: "soon")  # type: ignore[arg-type, return-value]
    queue.task("t", on_error=of_text)  # type: ignore[arg-type]
    later.task("t")(of_text)  # type: ignore[arg-type]

    @queue.consumer("t")  # type: ignore[type-var]
    def deliver(message: str) -> None: ...


def right(queue: QueueClient) -> None:
    """What handlers may be besides."""

    def of_a_sequence(messages: Sequence[Message]) -> None: ...
    def of_anything(message: Any) -> str:
        return "ignored"

    def of_more(message: Message, times: int = 1) -> None: ...

    class Handler:
        def __call__(self, message: Message) -> None: ...
        def method(self, message: Message) -> None: ...

    queue.consumer("t")(of_a_sequence)
    queue.consumer("t")(of_anything)
    queue.consumer("t")(of_more)
    queue.consumer("t")(Handler())
    queue.consumer("t")(Handler().method)


async def given(embedded: EmbeddedBroker[ManualClock]) -> None:
    shop(Client())
    shop(embedded)
    await shop_later(AsyncClient())
    async with delaylog.open_async("folder") as broker:
        await shop_later(broker)

"""What a consumer says of itself and of its failures, and where it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.client import BadRequest, Reject, Retry
from delaylog.client.outcomes import reason_of
from delaylog.client.wire.process_name import process_name
from tests.client.any_queue import Queue, got, on_a_queue


async def told(queue: Queue, id: str = "a") -> list[tuple[str, str | None, str | None]]:
    """(event, consumer, reason) of the steps of a message that have one of the two."""
    life = (await queue.call("get", id, life=True)).life
    return [
        (step["event"], step.get("consumer"), step.get("reason"))
        for step in life
        if "consumer" in step or "reason" in step
    ]


async def ids_of(found: Any) -> list[str]:
    """The ids of a list, of either client."""
    return [
        each.id
        for each in ([each async for each in found] if hasattr(found, "__aiter__") else list(found))
    ]


async def dead(queue: Queue) -> list[tuple[str | None, str | None]]:
    """(cause, reason) of the dead letters, which are the same with and without their history."""
    asked: Any = [queue.client.dead(queue.topic, history=history) for history in (True, False)]
    told, short = [
        [each async for each in found] if hasattr(found, "__aiter__") else list(found)
        for found in asked
    ]
    assert [letter.reason for letter in told] == [letter.reason for letter in short]
    assert not any(letter.life for letter in short)
    return [(letter.cause, letter.reason) for letter in told]


@on_a_queue
async def test_a_nack_says_why_and_a_receive_who(queue: Queue) -> None:
    """With the first attempt, which is followed by a wait, and with the last one."""
    await queue.call("put_topic", {"max_retry": 1})
    first = await queue.take(consumer="left")
    await got(first.nack(delay_ms=1, reason="no route"))
    (second,) = await queue.call("receive", wait_ms=5_000, consumer="right")
    await got(queue.client.nack([second], delay_ms=0, reason="ünreachable"))
    assert await told(queue) == [
        ("leased", "left", None),
        ("nacked", None, "no route"),
        ("leased", "right", None),
        ("dead", None, "ünreachable"),
    ]
    assert await dead(queue) == [("retries", "ünreachable")]


@on_a_queue
async def test_a_nack_without_a_wait_says_why_too(queue: Queue) -> None:
    message = await queue.take()
    await got(message.nack(delay_ms=0, reason="again"))
    assert (await told(queue))[-1] == ("nacked", None, "again")
    assert (await told(queue))[0] == ("leased", process_name(), None)


@on_a_queue
async def test_a_look_at_a_message_says_why(queue: Queue) -> None:
    """With and without its life: none at first, then that of the last attempt that failed."""

    async def reason() -> str | None:
        found = [await queue.call("get", "a", life=life) for life in (False, True)]
        assert found[0].reason == found[1].reason
        told: str | None = found[0].reason
        return told

    await queue.call("put_topic", {"max_retry": 1})
    message = await queue.take()
    assert await reason() is None
    await got(message.nack(delay_ms=0, reason="no route"))
    assert await reason() == "no route"
    (message,) = await queue.call("receive", wait_ms=5_000)
    assert await reason() == "no route"
    await got(message.nack(reason="unreachable"))
    assert await reason() == "unreachable"


@on_a_queue
async def test_a_reject_says_why(queue: Queue) -> None:
    message = await queue.take()
    await got(message.reject("the customer is gone"))
    assert await dead(queue) == [("rejected", "the customer is gone")]


@on_a_queue
async def test_dead_letters_of_one_kind(queue: Queue) -> None:
    """Selected by what their reasons begin with; `all` is a state of a list, as of the command."""
    await queue.call("put_topic", {"max_retry": 0})
    for name, reason in (("a", "ValueError: 1"), ("b", "KeyError: 1"), ("c", "ValueError: 2")):
        await queue.call("send", name, id=name)
        (message,) = await queue.call("receive", wait_ms=5_000)
        await got(message.nack(reason=reason))
    for chosen, wanted in (
        ({"reason_prefix": "ValueError:"}, ["a", "c"]),
        ({"reason": "KeyError: 1"}, ["b"]),
        ({"cause": "rejected"}, []),
    ):
        assert await ids_of(queue.client.dead(queue.topic, **chosen)) == wanted
    await queue.call("send", "d", id="d", delay_ms=60_000)
    assert await ids_of(queue.client.browse(queue.topic, state="all")) == ["a", "b", "c", "d"]
    assert await ids_of(queue.client.browse(queue.topic, state="waiting")) == ["d"]
    with pytest.raises(TypeError, match="no filter 'cause'"):
        await ids_of(queue.client.browse(queue.topic, cause="nack"))


@on_a_queue
async def test_a_block_says_which_exception_ended_it(queue: Queue) -> None:
    await queue.call("put_topic", {"max_retry": 0})

    def fail(_: Any) -> None:
        raise KeyError("street")

    with pytest.raises(KeyError):
        await queue.block(await queue.take(), fail)
    assert await dead(queue) == [("retries", "KeyError: 'street'")]


@on_a_queue
async def test_stats_show_who_has_messages(queue: Queue) -> None:
    await queue.call("send_many", ["a", "b", "c"])
    left = await queue.call("receive", max=2, consumer="left")
    (mine,) = await queue.call("receive")
    assert list((await queue.call("stats")).consumers) == [
        {"name": "left", "leased": 2},
        {"name": process_name(), "leased": 1},
    ]
    for message in (*left, mine):
        await got(message.ack())
    assert list((await queue.call("stats")).consumers) == []


@on_a_queue
async def test_names_and_reasons_have_a_limit(queue: Queue) -> None:
    message = await queue.take(consumer="n" * 255)
    with pytest.raises(BadRequest, match="reason must have at most 1024 bytes"):
        await got(message.nack(reason="x" * 1_025))
    with pytest.raises(BadRequest, match="consumer must have at most 255 bytes"):
        await queue.call("receive", consumer="n" * 256)
    await got(message.nack(delay_ms=0, reason="x" * 1_024))


def test_the_reason_of_an_exception() -> None:
    """Cut to what the broker takes, between two characters."""
    assert reason_of(ValueError("no")) == "ValueError: no"
    assert reason_of(Reject("gone")) == "gone"
    assert reason_of(Reject()) is None
    assert reason_of(Retry(delay_ms=5)) is None
    long = reason_of(Reject("é" * 1_000))
    assert long == "é" * 512
    assert reason_of(Reject("a\udc80b")) == "a?b"

"""Consumers by their names, reasons of exceptions, and lists that are selected by state."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from delaylog.client import Reject, Retry
from delaylog.client.handlers import reason_of
from delaylog.client.shards.receives import process_name
from tests.client.any_queue import Queue, got, listed, on_a_queue


async def dead(queue: Queue) -> list[tuple[str | None, str | None]]:
    """(cause, reason) of the dead letters, which are the same with and without their history."""
    told, short = [
        await listed(queue.client.dead(queue.topic, history=history)) for history in (True, False)
    ]
    assert [letter.reason for letter in told] == [letter.reason for letter in short]
    assert not any(letter.life for letter in short)
    return [(letter.cause, letter.reason) for letter in told]


@on_a_queue
async def test_all_is_a_state_of_a_list(queue: Queue) -> None:
    """As of the command; dead letters are selected by other filters."""
    await queue.call("send", "x", id="a")
    await queue.call("send", "x", id="b", delay=timedelta(minutes=1))
    for state, ids in (("all", ["a", "b"]), ("waiting", ["b"])):
        found = await listed(queue.client.browse(queue.topic, state=state))
        assert [each.id for each in found] == ids
    with pytest.raises(TypeError, match="a list has no argument 'cause'; it has timeout, due_from"):
        await listed(queue.client.browse(queue.topic, cause="nack"))


@on_a_queue
async def test_a_block_says_which_exception_ended_it(queue: Queue) -> None:
    await queue.call("put_topic", {"max_retry": 0})

    def fail(_: Any) -> None:
        raise KeyError("street")

    with pytest.raises(KeyError):
        await queue.block(await queue.take(), fail)
    assert await dead(queue) == [("retries", "KeyError: 'street'")]


@on_a_queue
async def test_stats_show_consumers_with_leased_messages(queue: Queue) -> None:
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


def test_the_reason_of_an_exception() -> None:
    """Cut to what the broker takes, between two characters."""
    assert reason_of(ValueError("no")) == "ValueError: no"
    assert reason_of(Reject("gone")) == "gone"
    assert reason_of(Reject()) is None
    assert reason_of(Retry(delay=timedelta(milliseconds=5))) is None
    long = reason_of(Reject("é" * 1_000))
    assert long == "é" * 512
    assert reason_of(Reject("a\udc80b")) == "a?b"
    assert reason_of(Reject(ValueError("no number"))) == "no number"


class Mute(Exception):
    """An exception whose text cannot be told."""

    def __str__(self) -> str:
        raise AttributeError("code")


class Bare(Reject):
    """A rejection that says no reason."""

    def __init__(self) -> None:
        pass


def test_the_reason_of_an_exception_that_has_no_text() -> None:
    """It must not raise: the message would never be settled."""
    assert reason_of(Mute()) == "Mute: Mute"
    assert reason_of(Reject(Mute())) == "Mute"
    assert reason_of(Bare()) is None
    number = Reject("x")
    number.reason = 5  # type: ignore[assignment]
    assert reason_of(number) == "5"


@on_a_queue
async def test_a_block_rejects_with_an_exception(queue: Queue) -> None:
    def fail(_: Any) -> None:
        raise Reject(ValueError("no number"))

    await queue.block(await queue.take(), fail)
    assert await dead(queue) == [("rejected", "no number")]

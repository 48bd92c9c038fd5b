"""Schedules of tasks at a start: a broker that is away is waited for, a refusal ends the worker."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from functools import partial

import pytest

from delaylog.broker.testing.live_broker import LiveBroker
from delaylog.client import AsyncClient, BadRequest, Client, NotReached
from delaylog.client._async.workers.beginnings import AsyncBeginnings
from tests.waiting import await_that, until

AWAY = "http://127.0.0.1:1"


class Call:
    """A call that fails with these errors before it succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.done = 0

    async def __call__(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.done += 1


def begun(*calls: Call) -> AsyncBeginnings:
    beginnings = AsyncBeginnings()
    for call in calls:
        beginnings.add("cannot put schedule 's'", call)
    return beginnings


async def test_each_start_makes_each_call_once(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Call(), Call(NotReached("away"), NotReached("away"))
    beginnings, end = begun(first, second), asyncio.Event()
    with caplog.at_level(logging.INFO, "delaylog"):
        await beginnings.begin(end)
        assert (first.done, second.done) == (1, 0)
        await until(lambda: second.done == 1)
        await beginnings.stop()
        await beginnings.begin(end)
    assert (first.done, second.done) == (2, 2)
    assert not end.is_set()
    assert "cannot put schedule 's': away; the worker tries again" in caplog.text
    assert "after 2 failed tries" in caplog.text


async def test_a_refusal_ends_the_start_or_the_worker() -> None:
    refusal = BadRequest(400, {"code": "bad_request", "detail": "no zone"}, None)
    end = asyncio.Event()
    with pytest.raises(BadRequest, match="no zone"):
        await begun(Call(refusal)).begin(end)
    late = begun(Call(NotReached("away"), refusal))
    await late.begin(end)
    assert late.error is None
    await until(end.is_set)
    assert late.error is refusal
    await late.stop()


async def test_a_stop_ends_the_tries() -> None:
    call = Call(*[NotReached("away")] * 1_000)
    beginnings = begun(call)
    await beginnings.begin(asyncio.Event())
    await beginnings.stop()
    left = len(call.errors)
    await asyncio.sleep(0.2)
    assert len(call.errors) == left


def test_a_worker_starts_while_the_broker_is_away(delaylog_broker: LiveBroker) -> None:
    """Threads: the schedule is put, and fires, when the broker comes back."""
    called: list[int] = []
    with delaylog_broker.client(timeout=timedelta(seconds=0.5)) as client:
        decorate = client.task("ticks", name="tick", wait=timedelta(milliseconds=300)).every(
            timedelta(seconds=1)
        )
        decorate(partial(called.append, 1))
        delaylog_broker.kill()
        client.start()
        assert called == []
        delaylog_broker.restart()
        await_that(lambda: called)
        client.stop()


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_several_brokers_need_a_shard_at_the_declaration(kind: type[Client]) -> None:
    client = kind(AWAY, "http://127.0.0.1:2")

    async def tick() -> None:
        pass

    function = tick if kind is AsyncClient else lambda: None
    with pytest.raises(ValueError, match=r"every, schedule 'tick' .*: give shard="):
        client.task("t", name="tick").every("* * * * *")(function)

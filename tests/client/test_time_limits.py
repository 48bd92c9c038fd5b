"""How long calls take: by default ten seconds, or as long as a call says; and what is told then.

A mute server stands for a broker that hangs, a closed port for one that is away.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from delaylog.client import (
    AnswerLate,
    AsyncClient,
    Client,
    NewMessage,
    NotReachedInTime,
    SendFailed,
)
from delaylog.client.sending.lane import RETRY_FOR_S_MAX
from delaylog.client.wire.exchange import TIMEOUT_S, Times
from tests.client.any_queue import Queue, got, on_a_queue
from tests.client.either import ThreadedClient
from tests.client.every_call import CALLS, OF_ONE_BROKER
from tests.client.scenes import answer_of_receive, serving

SHORT_S = 1.0
SHORT = timedelta(seconds=SHORT_S)
CONNECTED = 4 * SHORT
"""Where an answer does not come. A call that has no connection after three quarters of its limit
ends as not reached: a machine that stands still for a moment must not look like that."""
SLACK_S = 10.0
"""This machine may be busy: far less than what a call without a time limit would take."""
AWAY = "http://127.0.0.1:9"


@pytest.fixture
def mute() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def ends_in_time(kind: type[Exception], says: str = "time") -> Iterator[None]:
    began_s = time.monotonic()
    with pytest.raises(kind, match=says) as caught:
        yield
    assert isinstance(caught.value, TimeoutError)
    assert time.monotonic() - began_s < SHORT_S + SLACK_S


def test_ten_seconds_is_the_limit_of_calls_that_give_none() -> None:
    assert TIMEOUT_S == 10
    with Client(AWAY) as client:
        assert client._links[0].transport.times == Times(10.0)
        assert client.timeout_s == client._timeout_s == 10
    with Client(AWAY, timeout=timedelta(hours=1)) as patient:
        assert patient.timeout_s == 3_600
        assert patient._timeout_s == RETRY_FOR_S_MAX


async def test_a_send_to_a_broker_that_is_away_says_that_nothing_is_there(make: Any) -> None:
    limit = {"timeout": SHORT}
    async with make(AWAY) as client:
        says = rf"time limit {SHORT_S:g} s\): nothing was sent"
        with ends_in_time(NotReachedInTime, says):
            await client.send("t", "x", **limit)
        with ends_in_time(NotReachedInTime, says):
            await client.send_columns("t", ["x"], **limit)
        with pytest.raises(SendFailed) as failed:
            await client.send_many("t", ["x", NewMessage("y", id="a")], **limit)
        assert [type(each) for each in failed.value.outcomes] == [NotReachedInTime] * 2
    async with make(AWAY, **limit) as client:
        with ends_in_time(NotReachedInTime, says):
            await client.send("t", "x")


async def test_a_send_to_a_broker_that_hangs_says_that_it_may_be_there(
    make: Any, mute: str
) -> None:
    async with make(mute) as client:
        with ends_in_time(AnswerLate, rf"time limit {4 * SHORT_S:g} s\): the message may exist"):
            await client.send("t", "x", timeout=CONNECTED)
        with ends_in_time(AnswerLate, "may exist"):
            await client.send_columns("t", ["x"], timeout=CONNECTED)
    async with make(mute, linger=timedelta(milliseconds=1)) as client:
        with ends_in_time(AnswerLate, "may exist"):
            await client.send("t", "x", timeout=CONNECTED)


def test_a_thread_that_hangs_in_another_request_does_not_hold_a_send_up(mute: str) -> None:
    with Client(
        mute,
        linger=timedelta(milliseconds=1),
        timeout=timedelta(seconds=20),
        retry_for=timedelta(seconds=0.1),
    ) as client:
        client.send_soon("other", "x")
        time.sleep(0.2)
        with ends_in_time(AnswerLate, "may exist, and may still be sent"):
            client.send("t", "x", timeout=SHORT)
        client._links[0].transport.close()
        with pytest.raises(SendFailed):
            client.close()


async def test_sends_that_wait_for_room_have_a_time_limit_too(mute: str) -> None:
    client = AsyncClient(mute, batch_max=1, pending_max=1, retry_for=timedelta(0))
    client.send_soon("t", "x")
    with ends_in_time(NotReachedInTime, r"1 messages .* wait .* nothing was sent"):
        await client.send("t", "y", timeout=SHORT)
    with pytest.raises(SendFailed) as failed:
        await client.send_many("t", ["y", "z"], timeout=SHORT)
    assert [type(each) for each in failed.value.outcomes] == [NotReachedInTime] * 2
    with pytest.raises(SendFailed, match="1 messages"):
        await client.close(within=timedelta(0))

    def threads() -> None:
        client = Client(
            mute,
            batch_max=1,
            pending_max=1,
            retry_for=timedelta(0),
            linger=timedelta(milliseconds=1),
            timeout=timedelta(seconds=30),
        )
        client.send_soon("t", "x")
        with ends_in_time(NotReachedInTime, r"1 messages .* wait .* nothing was sent"):
            client.send("t", "y", timeout=SHORT)
        with pytest.raises(SendFailed, match="1 messages"):
            client.close(within=timedelta(0))

    await asyncio.to_thread(threads)


async def test_sends_with_equal_limits_share_requests(two_brokers: tuple[str, str]) -> None:
    async with AsyncClient(two_brokers[0]) as client:
        posts: list[int] = []
        post = client._links[0].post

        async def counted(*given: Any) -> Any:
            posts.append(1)
            return await post(*given)

        client._senders[0]._post = counted
        sent = await asyncio.gather(
            *(
                client.send("shared", f"{n}", timeout=timedelta(seconds=20 + n % 2))
                for n in range(400)
            )
        )
        assert len({each.id for each in sent}) == 400
        assert len(posts) <= 4


async def test_every_call_takes_a_time_limit(mute: str) -> None:
    """All at the same time, so that the test takes as long as one."""
    limit = {"timeout": CONNECTED}

    async def late(call: Any) -> None:
        with ends_in_time(AnswerLate):
            await call

    async def listed(messages: Any) -> None:
        with ends_in_time(AnswerLate):
            async for _ in messages:
                pass

    async with AsyncClient(mute, timeout=timedelta(minutes=1)) as client:
        calls = [late(call(client, limit)) for call in CALLS.values()]
        calls += [late(call(client.broker(), limit)) for call in OF_ONE_BROKER.values()]
        calls += [listed(client.browse("t", **limit)), listed(client.dead("t", **limit))]
        await asyncio.gather(*calls)


@pytest.mark.parametrize("name", ["ack", "nack", "reject", "release", "extend", "begin"])
async def test_so_do_messages(make: Any, name: str) -> None:
    async def handle(request: web.Request) -> web.Response:
        await request.read()
        if not request.path.endswith("/receive"):
            await asyncio.sleep(3)
        return answer_of_receive(1)

    own = {"lease": timedelta(minutes=5)} if name == "extend" else {}
    async with serving(handle) as url, make(url, timeout=timedelta(minutes=1)) as client:
        (message,) = await client.receive("t")
        with ends_in_time(AnswerLate):
            await getattr(client, name)(message, **own, timeout=SHORT)
        with ends_in_time(AnswerLate):
            method = getattr(message, name)
            if make is ThreadedClient:
                await asyncio.to_thread(method, **own, timeout=SHORT)
            else:
                await method(**own, timeout=SHORT)
        assert not message.settled


async def test_the_limit_of_a_receive_is_in_addition_to_its_wait(make: Any) -> None:
    async def handle(request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(0.6)
        return answer_of_receive(1)

    async with serving(handle) as url, make(url) as client:
        short = timedelta(seconds=0.2)
        assert len(await client.receive("t", wait=timedelta(seconds=20), timeout=short)) == 1
        with ends_in_time(AnswerLate):
            await client.receive("t", timeout=short)


@on_a_queue
async def test_embedded_brokers_take_them_too(queue: Queue) -> None:
    limit = {"timeout": timedelta(seconds=30)}
    await queue.call("send", "x", id="a", **limit)
    await queue.call("send_many", ["y"], **limit)
    await queue.call("send_columns", ["z"], **limit)
    await got(queue.client.flush(timeout=timedelta(seconds=30)))
    found = []
    while len(found) < 3:
        found += await queue.call("receive", max=3, wait=timedelta(seconds=5), **limit)
    await got(found[0].extend(lease=timedelta(minutes=1), **limit))
    await got(queue.client.ack(found, **limit))
    assert (await queue.call("stats", timeout=timedelta(seconds=30))).counts.acked == 3
    assert (await queue.call("get", "a", timeout=timedelta(seconds=30))).state == "acked"


@on_a_queue
async def test_a_wrong_time_limit_is_refused(queue: Queue) -> None:
    message = await queue.take()
    for wrong, kind, says in (
        ({"timeout": timedelta(0)}, ValueError, "timeout lies above 0 s and up to 86400 s, not 0"),
        ({"timeout": timedelta(-1)}, ValueError, "timeout lies above 0 s"),
        ({"timeout": 5}, TypeError, "timeout is a timedelta, not int; 5 seconds are timedelta"),
        ({"timeout_s": 5}, TypeError, "no argument 'timeout_s': write timeout=timedelta"),
        ({"timeout": timedelta(days=2)}, ValueError, "up to 86400 s, not 172800 s"),
    ):
        for name, given in (("send", ["x"]), ("receive", []), ("stats", []), ("get", ["a"])):
            with pytest.raises(kind, match=says):
                await queue.call(name, *given, **wrong)
        with pytest.raises(kind, match=says):
            await got(queue.client.ack(message, **wrong))
        with pytest.raises(kind, match=says):
            await got(message.ack(**wrong))
    for call in (queue.client.ack, queue.client.release):
        with pytest.raises(TypeError, match="no argument 'colour'"):
            await got(call(message, colour=1))
    with pytest.raises(TypeError, match="no argument 'colour'"):
        await queue.call("get", "a", colour=1)


async def test_a_send_takes_no_longer_than_brokers_remember(make: Any) -> None:
    async with make(AWAY) as client:
        with pytest.raises(ValueError, match="the time limit of a send is at most 500 s"):
            await client.send("t", "x", timeout=timedelta(seconds=501))

"""A leader that is stopped between lease and answer hands nothing out when it wakes up.

Each door is tried: the boot clock of a real broker steps by 4 s between the turn that leases and
the one that answers. A message that was not handed out is ready again.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from delaylog.broker.calls.forms.arrow_stream import ARROW
from delaylog.client.child_broker import free_port
from tests.broker.conftest import Broker
from tests.broker.push.receivers import Receiver, answer
from tests.broker.resp.resp_client import RespClient
from tests.broker.stopped_leader import LOST_S
from tests.broker.web.streams import WAIT_S, path_of
from tests.waiting import await_that

PROGRAM = str(Path(__file__).with_name("stopped_leader.py"))
_names = itertools.count(1)


class Stopped:
    """A broker whose machine stops, with doors for HTTP and Redis clients."""

    def __init__(self, start: Callable[..., Broker]) -> None:
        self.resp_port, self.push_port = free_port(), free_port()
        self.broker = start(
            *("--resp", f"127.0.0.1:{self.resp_port}"),
            *("--push-allow", "127.0.0.0/8", "--push-ports", str(self.push_port)),
            program=(sys.executable, "-P", PROGRAM),
        )

    def topic(self, stop: str) -> str:
        """A topic with one message, whose first lease is followed by the stop."""
        name = f"{stop}-{next(_names)}"
        self.send(name)
        return name

    def send(self, name: str) -> None:
        time.sleep(LOST_S)  # The stop of an earlier test may be recent.
        answer = self.broker.call("POST", f"/v1/topics/{name}/messages", {"body": "x"})
        assert answer.status == 200, answer

    def is_ready(self, name: str) -> None:
        """The message can be received now, and was given to nobody before."""
        receive = f"/v1/topics/{name}/receive"

        def received() -> Any:
            answer = self.broker.call("POST", receive, {"max": 5, "wait_ms": 100})
            return answer.json["messages"] if answer.status == 200 else []

        (message,) = await_that(received)
        assert message["attempts"] == 1, "the lease that ended unseen is no attempt"


@pytest.fixture(scope="module")
def stopped(start_broker: Callable[..., Broker]) -> Iterator[Stopped]:
    made = Stopped(start_broker)
    yield made
    made.broker.end_well()


@pytest.mark.parametrize("wait_ms", [0, 5_000])
@pytest.mark.parametrize("tail", ["receive", "ack_and_receive"])
def test_receives(stopped: Stopped, tail: str, wait_ms: int) -> None:
    name = stopped.topic("stop-lease")
    body = {"max": 5, "wait_ms": wait_ms} | ({"receipts": []} if "ack" in tail else {})
    answer = stopped.broker.call("POST", f"/v1/topics/{name}/{tail}", body)
    assert (answer.status, answer.json["code"]) == (503, "not_ready"), answer
    stopped.is_ready(name)


@pytest.mark.parametrize("form", ["application/json", "application/vnd.delaylog.batch", ARROW])
def test_claims(stopped: Stopped, form: str) -> None:
    """The rows of a claim are handed out while the node leads only."""
    call, name = stopped.broker.call, f"claimed-{next(_names)}"
    stopped.send(name)
    assert call("POST", f"/v1/topics/{name}/claims/c", {}).status == 200
    other = stopped.topic("stop-lease")
    assert call("POST", f"/v1/topics/{other}/receive", {}).status == 503
    rows, accept = f"/v1/topics/{name}/claims/c/rows?from=0&to=1", {"Accept": form}
    answer = call("GET", rows, None, accept)
    assert (answer.status, answer.json["code"]) == (503, "not_ready"), answer
    await_that(lambda: call("GET", rows, None, accept).status == 200)


def test_bulk_receives(stopped: Stopped) -> None:
    name = stopped.topic("stop-lease")
    accept = {"Accept": "application/vnd.delaylog.batch"}
    answer = stopped.broker.call("POST", f"/v1/topics/{name}/receive", {}, accept)
    assert answer.status == 503, answer
    stopped.is_ready(name)


def test_redis_receives(stopped: Stopped) -> None:
    client = RespClient(stopped.resp_port)
    name = stopped.topic("stop-lease")
    reply = client.call("DL.RECEIVE", name, 5)
    assert isinstance(reply, Exception), reply
    client.close()
    stopped.is_ready(name)


def test_camellia_pulls(stopped: Stopped) -> None:
    name = stopped.topic("stop-lease")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    path = "/camellia/delayQueue/pullMsg"
    answer = stopped.broker.call("POST", path, f"topic={name}&batch=5".encode(), form)
    assert b'"msgId"' not in answer.body, answer
    stopped.is_ready(name)


async def test_websockets(stopped: Stopped) -> None:
    """The stream ends, as with any leader that has lost the lead."""
    name = await asyncio.to_thread(stopped.topic, "stop-lease")
    async with (
        aiohttp.ClientSession(stopped.broker.url) as session,
        session.ws_connect(path_of(name)) as socket,
    ):
        found = [await asyncio.wait_for(socket.receive(), WAIT_S) for _ in range(2)]
        assert (found[1].type, found[1].data) == (aiohttp.WSMsgType.CLOSE, 4503), found
    await asyncio.to_thread(stopped.is_ready, name)


@pytest.mark.parametrize("stop", ["stop-lease", "stop-later"])
async def test_server_sent_events(stopped: Stopped, stop: str) -> None:
    """Their answer is made two turns after the lease."""
    name = await asyncio.to_thread(stopped.topic, stop)
    accept, body = {"Accept": "text/event-stream"}, b""
    async with (
        aiohttp.ClientSession(stopped.broker.url, headers=accept) as session,
        session.get(path_of(name)) as response,
    ):
        with suppress(TimeoutError):
            async with asyncio.timeout(LOST_S / 2):
                while line := await response.content.readline():
                    body += line
    assert b"receipt" not in body, body
    await asyncio.to_thread(stopped.is_ready, name)


def receiver_at(port: int) -> Receiver:
    receiver = Receiver(answer(200))
    receiver.port = port
    return receiver


@pytest.mark.parametrize("stop", ["stop-lease", "stop-later"])
async def test_pushes(stopped: Stopped, stop: str) -> None:
    """An attempt begins in a turn of its own; the message goes out once the node leads again."""
    name = f"{stop}-{next(_names)}"
    async with receiver_at(stopped.push_port) as receiver:
        call = stopped.broker.call
        url = f"http://127.0.0.1:{receiver.port}/hook"
        made = await asyncio.to_thread(
            call, "PUT", f"/v1/topics/{name}/groups/default/target", {"url": url}
        )
        assert made.status in (200, 201), made
        await asyncio.to_thread(stopped.send, name)
        await asyncio.sleep(LOST_S / 2)
        assert not receiver.requests
        async with asyncio.timeout(20):
            await receiver.arrived.wait()

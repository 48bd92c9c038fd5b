"""An AsyncClient in a second event loop: a clear error, at once, and a close that works.

The scenes run in programs of their own, because loops that end with open connections leave
ResourceWarnings behind.
"""

from __future__ import annotations

import sys
import textwrap

import pytest

from delaylog.client import Client
from tests.programs import run_program

HEAD = """
import asyncio, sys
from delaylog.client import AsyncClient, SendFailed

url, topic = sys.argv[1:]
client = AsyncClient(url)

async def refusal(call):
    try:
        await asyncio.wait_for(call(), 30)
    except RuntimeError as error:
        return str(error)

async def send_soon():
    client.send_soon(topic, "x")

async def loops():
    async for _ in client.subscribe(topic):
        pass

async def refused():
    calls = lambda: client.send(topic, "x"), lambda: client.send_many(topic, ["x"]), client.topics
    assert {await refusal(call) for call in (*calls, send_soon, loops)} == {
        "this client belongs to the event loop that used it first: make one in each"
    }
"""
FIRST_RUN = """
async def first():
    await client.send(topic, "x")

asyncio.run(first())
"""
UNFINISHED = """
loop = asyncio.new_event_loop()
loop.run_until_complete(client.send(topic, "x"))
loop.close()
"""
UNSENT = """
loop = asyncio.new_event_loop()
loop.run_until_complete(send_soon())
loop.close()
try:
    asyncio.run(asyncio.wait_for(client.close(), 30))
except SendFailed as error:
    assert error.rows == 1, error
    print("said")
"""


def said_by(program: str, url: str, topic: str) -> str:
    text = textwrap.dedent(HEAD + program)
    return run_program(sys.executable, "-c", text, url, topic, check=True).stdout


@pytest.mark.parametrize("first", [FIRST_RUN, UNFINISHED], ids=["run", "unfinished"])
def test_a_second_loop_is_refused(two_brokers: tuple[str, str], topic: str, first: str) -> None:
    """Also after a loop that left its tasks unfinished, of which the sends would wait for ever."""
    program = f"{first}\nasyncio.run(refused())\nasyncio.run(asyncio.wait_for(client.close(), 30))"
    assert said_by(f"{program}\nprint('closed')", two_brokers[0], topic) == "closed\n"
    with Client(two_brokers[0]) as looking:
        assert looking.stats(topic).counts.ready == 1


def test_a_close_in_a_second_loop_says_what_was_not_sent(
    two_brokers: tuple[str, str], topic: str
) -> None:
    assert said_by(UNSENT, two_brokers[0], topic) == "said\n"

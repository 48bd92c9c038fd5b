"""Workers on an embedded broker: what is written for a client runs as it stands."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import delaylog
from delaylog.broker.embedded import EmbeddedBroker, ManualClock
from delaylog.client import Message, NotFound
from delaylog.client.workers import Retry
from tests.waiting import await_that

SOURCE = str(Path(delaylog.__file__).parent.parent)

PROGRAM = """
import sys, delaylog

client = delaylog.open(sys.argv[1])

@client.consumer("mails", concurrency=2)
def deliver(message):
    print("handled", message.text, flush=True)

client.send("mails", "welcome")
client.run()
client.close()
print("closed", flush=True)
"""

ASYNC_PROGRAM = """
import asyncio, sys, delaylog

async def main():
    async with delaylog.open_async(sys.argv[1]) as client:

        @client.consumer("mails", concurrency=2)
        async def deliver(message):
            print("handled", message.text, flush=True)

        await client.send("mails", "welcome")
        await client.run()
    print("closed", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("program", [PROGRAM, ASYNC_PROGRAM])
def test_a_program_handles_messages_until_it_is_asked_to_end(
    open_embedded: Any, tmp_path: Path, program: str
) -> None:
    folder = tmp_path / "f"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ, PYTHONPATH=SOURCE),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "handled welcome\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "closed\n"
    assert process.returncode == 0
    assert open_embedded(folder).stats("mails").counts.acked == 1


def test_handlers_run_as_the_clock_is_moved(broker: EmbeddedBroker[ManualClock]) -> None:
    """A message of tomorrow, one that failed and waits for its backoff, one that asks for more."""
    handled: list[tuple[str, int]] = []

    @broker.consumer("t", wait=timedelta(milliseconds=500))
    def handle(message: Message) -> None:
        handled.append((message.text, message.attempts))
        if message.text == "fails" and message.attempts == 1:
            raise ValueError("the first time")
        if message.text == "asks" and message.attempts == 1:
            raise Retry(delay=timedelta(days=1))

    broker.put_topic("t", {"backoff": {"first_ms": 60_000, "jitter": 0}})
    for body in ("fails", "asks"):
        broker.send("t", body, delay=timedelta(days=1))
    broker.start()
    broker.clock.advance(days=1, ms=-1)
    assert handled == []
    broker.clock.advance(ms=1)
    await_that(lambda: broker.stats("t").counts.waiting == 2)
    assert sorted(handled) == [("asks", 1), ("fails", 1)]
    broker.clock.advance(minutes=1)
    await_that(lambda: broker.stats("t").counts.acked == 1)
    broker.clock.advance(days=1)
    await_that(lambda: broker.stats("t").counts.acked == 2)
    broker.stop()
    assert handled[2:] == [("fails", 2), ("asks", 2)]


def test_closing_waits_for_handlers_and_gives_back_the_rest(
    open_embedded: Any, tmp_path: Path
) -> None:
    """As closing a client does: what runs is acked, what has not begun is ready at once."""
    folder, began, go_on = tmp_path / "f", threading.Event(), threading.Event()
    broker = open_embedded(folder)
    handled = []

    @broker.consumer("t", concurrency=1, lease=timedelta(minutes=10))
    def handle(message: Message) -> None:
        handled.append(message.text)
        began.set()
        assert go_on.wait(20)

    broker.send_many("t", ["a", "b", "c"])
    broker.start()
    assert began.wait(20)
    closing = threading.Thread(target=broker.close)
    closing.start()
    go_on.set()
    closing.join(20)
    again = open_embedded(folder)
    counts = again.stats("t").counts
    assert (counts.acked, counts.leased) == (len(handled), 0)
    left = handled.copy()
    while len(left) < 3:
        left += [message.text for message in again.receive("t", wait=timedelta(seconds=10))]
    assert sorted(left) == ["a", "b", "c"]


def test_in_a_loop_under_a_clock_that_is_moved(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with delaylog.open_async(tmp_path / "f", clock=clock, fsync="never") as broker:
            handled = asyncio.Event()
            seen = []

            @broker.consumer("t", batch_max=10, wait=timedelta(milliseconds=500))
            async def handle(messages: list[Message]) -> None:
                seen.extend(message.text for message in messages)
                if len(seen) == 3:
                    handled.set()

            await broker.send_many("t", ["a", "b", "c"], delay=timedelta(days=1))
            await broker.start()
            await broker.advance(days=1, ms=-1)
            assert seen == []
            await broker.advance(ms=1)
            await asyncio.wait_for(handled.wait(), 20)
            await broker.stop()
            assert (await broker.stats("t")).counts.acked == 3

    asyncio.run(main())


def test_a_handler_of_the_wrong_kind_is_refused(broker: EmbeddedBroker[ManualClock]) -> None:
    with pytest.raises(TypeError, match="use AsyncClient"):

        @broker.consumer("t")
        async def handle(message: Message) -> None: ...

    with pytest.raises(RuntimeError, match="nothing to run"):
        broker.run()


def refused(broker: Any) -> bool:
    """Whether its consumer has heard that it may not begin."""
    ((_, shift),) = broker._shifts
    return shift.startup.error is not None


def test_a_refused_consumer_hides_no_error_of_the_program(tmp_path: Path) -> None:
    """Leaving by an error closes, and what closing has to say is in the log."""

    def program() -> None:
        with delaylog.open(tmp_path / "f") as broker:
            broker.put_topic("t", {})
            broker.consumer("t", group="missing")(print)
            broker.start()
            await_that(lambda: refused(broker))
            raise LookupError("of the program")

    with pytest.raises(LookupError):
        program()


def test_a_refused_consumer_loses_no_send_that_is_under_way(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the splitter until stopping is over, and is in the log when close is."""
    crowded = [True]

    async def handler(message: Message) -> None:
        print(message)

    async def program() -> None:
        async with delaylog.open_async(tmp_path / "f") as broker:
            await broker.put_topic("t", {})
            broker.consumer("t", group="missing")(handler)
            await broker.start()
            monkeypatch.setattr(nodes[0].engine.housekeeping, "crowded", lambda **_: crowded[0])
            broker.send_soon("t", "under way")
            await asyncio.to_thread(await_that, lambda: refused(broker))
            stop = broker.stop

            async def stopped(**how: Any) -> None:
                try:
                    await stop(**how)
                finally:
                    crowded.clear()
                    crowded.append(False)

            monkeypatch.setattr(broker, "stop", stopped)

    with pytest.raises(NotFound, match="no group 'missing'"):
        asyncio.run(program())
    with delaylog.open(tmp_path / "f") as broker:
        assert [message.text for message in broker.receive("t", wait=timedelta(seconds=5))] == [
            "under way"
        ]

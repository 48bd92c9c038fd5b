"""Hooks of embedded brokers of both kinds hear what those of clients hear."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

import delaylog
from delaylog.client import ApiError, Hooks, LeasedMessage
from tests.waiting import await_that, until


class Noting(Hooks):
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_sent(self, topic: str, n: int, seconds: float) -> None:
        assert seconds >= 0
        self.heard.append(f"sent {n} to {topic}")

    def on_send_failed(self, topic: str, n: int, error: Exception, seconds: float) -> None:
        assert seconds >= 0
        self.heard.append(f"failed {n}: {type(error).__name__}")

    def outgoing_headers(self, topic: str) -> Mapping[str, str]:
        return {"trace": "1", "own": "of the hook"}

    @contextmanager
    def handling(self, message: LeasedMessage) -> Iterator[None]:
        self.heard.append("handling")
        yield

    def on_handled(self, message: LeasedMessage, seconds: float) -> None:
        self.heard.append(f"handled {dict(message.headers)}")


HEARD = [
    "sent 1 to t",
    "sent 2 to u",
    "handling",
    "handled {'trace': '1', 'own': 'of the message'}",
]
OWN = {"own": "of the message"}
LIMITS = {"body_bytes_max": 100}
LARGE = "x" * 101


def test_a_broker_for_threads_tells_its_hooks(tmp_path: Path) -> None:
    hooks = Noting()
    with delaylog.open(tmp_path / "f", fsync="never", hooks=[hooks], limits=LIMITS) as queue:

        @queue.consumer("t", wait=timedelta(milliseconds=200))
        def handle(message: LeasedMessage) -> None:
            """Nothing."""

        queue.send("t", "x", headers=OWN)
        queue.send_many("u", ["x", "y"])
        queue.start()
        await_that(lambda: len(hooks.heard) == 4)
        queue.stop()
        with pytest.raises(ApiError):
            queue.send("t", LARGE)
    assert hooks.heard[:4] == HEARD
    assert hooks.heard[4].startswith("failed 1: ")


def test_a_broker_for_a_loop_tells_its_hooks(tmp_path: Path) -> None:
    hooks = Noting()

    async def program() -> None:
        path = tmp_path / "f"
        async with delaylog.open_async(path, fsync="never", hooks=[hooks], limits=LIMITS) as queue:

            @queue.consumer("t", wait=timedelta(milliseconds=200))
            async def handle(message: LeasedMessage) -> None:
                """Nothing."""

            await queue.send("t", "x", headers=OWN)
            await queue.send_many("u", ["x", "y"])
            await queue.start()
            await until(lambda: len(hooks.heard) == 4)
            await queue.stop()
            with pytest.raises(ApiError):
                await queue.send("t", LARGE)

    asyncio.run(program())
    assert hooks.heard[:4] == HEARD
    assert hooks.heard[4].startswith("failed 1: ")


def test_hooks_are_checked(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="hooks is a list"):
        delaylog.open(tmp_path / "f", hooks=Hooks())  # type: ignore[arg-type]

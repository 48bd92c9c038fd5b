"""Tasks that are cancelled anywhere in a call of a client: nothing is lost or left behind.

Each scene runs on an AsyncClient at a live broker and on an embedded broker.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

import delaylog
from delaylog.client import AsyncClient
from tests.waiting import until

LEASE_MS = 1_500


def open_descriptors() -> int:
    """How many there are; the loop may still have to close some."""
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("kind", ["client", "embedded"])
async def test_no_cancellation_loses_a_message_or_leaves_anything_open(
    kind: str, two_brokers: tuple[str, str], tmp_path: Path, topic: str
) -> None:
    """Each message whose send returned is acked in the end: by its task, or by a later delivery."""
    random = Random(26)
    sent: set[str] = set()
    maybe_acked: set[str] = set()

    async def send(client: Any) -> None:
        number = f"{random.getrandbits(60)}"
        assert (await client.send(topic, number, id=number)).id == number
        sent.add(number)

    async def receive(client: Any) -> None:
        for message in await client.receive(
            topic, max=3, wait=timedelta(milliseconds=20), lease=timedelta(milliseconds=LEASE_MS)
        ):
            assert message.text == message.id
            maybe_acked.add(message.id)
            await message.ack()

    async def subscribe(client: Any) -> None:
        async for message in client.subscribe(topic, max=3, lease=timedelta(milliseconds=LEASE_MS)):
            maybe_acked.add(message.id)
            async with message:
                await asyncio.sleep(0.002)

    calls: list[Callable[[Any], Awaitable[None]]] = [send, send, receive, subscribe]

    def opened() -> Any:
        if kind == "client":
            return AsyncClient(two_brokers[0])
        return delaylog.open_async(tmp_path / "f", fsync="never")

    async with opened() as client:
        # The first of a process opens some descriptors for good.
        await client.topics()
    await asyncio.sleep(0.1)
    tasks, before = asyncio.all_tasks(), open_descriptors()
    async with opened() as client:
        await client.put_topic(topic, {"backoff": {"first_ms": 1}})
        await client.send(topic, "whole", id="whole")

        async def cancels() -> None:
            for number in range(30):
                task = asyncio.ensure_future(calls[number % 4](client))
                await asyncio.sleep(random.choice((0, 0.001, 0.01, 0.03)) * random.random())
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

        await asyncio.gather(*(cancels() for _ in range(4)))
        async with asyncio.timeout(60):
            while (counts := (await client.stats(topic)).counts).acked < sum(
                (counts.ready, counts.leased, counts.waiting, counts.acked)
            ):
                for message in await client.receive(
                    topic, max=100, wait=timedelta(milliseconds=100)
                ):
                    maybe_acked.add(message.id)
                    await message.ack()
        assert counts.dead == 0
        assert sent | {"whole"} <= maybe_acked
        for number in sent:
            assert (await client.get(topic, number)).state == "acked"
    assert asyncio.all_tasks() == tasks
    await until(lambda: open_descriptors() <= before)

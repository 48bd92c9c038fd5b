"""The embedded broker on an event loop: the same calls, awaited; the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import timedelta
from pathlib import Path
from time import monotonic

import pytest

import delaylog
from delaylog.broker.embedded import ClosedError, ConfigError
from delaylog.broker.embedded.node import EmbeddedNode
from delaylog.client import NewMessage, errors


async def test_calls_are_awaited(tmp_path: Path) -> None:
    async with delaylog.open_async(tmp_path / "f") as broker:
        await broker.put_topic("t", {"max_retry": 3})
        sent = await broker.send("t", "x", id="a", delay=timedelta(milliseconds=30))
        (message,) = await broker.receive("t", wait=timedelta(seconds=5))
        assert (message.id, message.deliver_at_ms) == (sent.id, sent.deliver_at_ms)
        assert (await broker.get("t", "a")).state == "leased"
        assert await broker.extend(message, lease=timedelta(minutes=1)) == ["done"]
        assert await broker.nack(message, delay=timedelta(0)) == ["done"]
        assert await broker.ack(await broker.receive("t")) == ["done"]
        await broker.send_many("t", [NewMessage("y", id="b", delay=timedelta(seconds=9)), b"z"])
        assert (await broker.send_columns("t", [b"c"], delay_ms=9_000)).n == 1
        assert (await broker.cancel("t", "b")).result == "done"
        found = [each.state async for each in broker.browse("t", state=["waiting"])]
        assert found == ["waiting"]
        assert (await broker.stats("t")).counts.cancelled == 1
        assert [each.topic for each in await broker.topics()] == ["t"]
        with pytest.raises(errors.NotFound):
            await broker.get("t", "nobody")


async def test_the_loop_goes_on_while_a_call_waits(tmp_path: Path) -> None:
    async with delaylog.open_async(tmp_path / "f") as broker:
        waiting = asyncio.create_task(broker.receive("t", wait=timedelta(seconds=30)))
        await asyncio.sleep(0)
        await broker.send("t", "x")
        assert [message.text for message in await waiting] == ["x"]


async def test_sends_are_handed_over_and_flushed(nodes: list[EmbeddedNode], tmp_path: Path) -> None:
    """Those of one turn share their commits; a refusal that nobody awaited comes out of flush."""
    async with delaylog.open_async(tmp_path / "f") as broker:
        sends = [broker.send_soon("t", str(k), delay=timedelta(minutes=1)) for k in range(500)]
        await broker.flush()
        assert all(send.done() and send.exception() is None for send in sends)
        assert (await broker.stats("t")).sent == 500
        assert nodes[0].log_commits.commits < 250
        broker.send_soon("t", "x", id="a", merge="reject", delay=timedelta(minutes=1))
        with pytest.raises(errors.IdInUse):
            await broker.send("t", "x", id="a", merge="reject", delay=timedelta(minutes=1))
        broker.send_soon("t", "x", id="a", merge="reject", delay=timedelta(minutes=1))
        with pytest.raises(errors.SendFailed) as failed:
            await broker.flush()
        assert [type(each) for each in failed.value.failures] == [errors.IdInUse]


async def test_a_flush_sees_a_failure_of_its_own_turn(tmp_path: Path) -> None:
    async with delaylog.open_async(tmp_path / "f") as broker:
        await broker.send("t", "x", id="a", delay=timedelta(minutes=1))
        sending = broker.send_soon("t", "x", id="a", merge="reject", delay=timedelta(minutes=1))
        await asyncio.wait([sending.task])
        with pytest.raises(errors.SendFailed):
            await broker.flush()


async def test_a_cancelled_receive_has_taken_nothing(tmp_path: Path) -> None:
    async with delaylog.open_async(tmp_path / "f") as broker:
        waiting = asyncio.create_task(broker.receive("t", wait=timedelta(seconds=30)))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await broker.send("t", "x")
        assert len(await broker.receive("t")) == 1


async def test_a_receive_that_is_cancelled_when_messages_have_come_gives_them_back(
    nodes: list[EmbeddedNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has leased them and waits for the log, which another one writes just now."""
    async with delaylog.open_async(tmp_path / "f", fsync="always") as broker:
        await broker.send("t", "x")
        log, sync, go_on = nodes[0].engine.state.log, os.fdatasync, threading.Event()
        write, taken = log.write_pending, threading.Event()

        def busy(*, wait: bool = True) -> bool:
            if wait:
                return write()
            taken.set()
            return False

        monkeypatch.setattr(log, "write_pending", busy)
        monkeypatch.setattr(os, "fdatasync", lambda fd: (go_on.wait(20), sync(fd)))
        waiting = asyncio.create_task(
            broker.receive("t", wait=timedelta(seconds=30), lease=timedelta(minutes=10))
        )
        await asyncio.to_thread(taken.wait, 20)
        assert (await broker.stats("t")).counts.leased == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        go_on.set()
        monkeypatch.setattr(log, "write_pending", write)
        (message,) = await broker.receive("t", wait=timedelta(seconds=20))
        assert (message.text, message.attempts) == ("x", 1)


async def test_a_month_passes(tmp_path: Path) -> None:
    clock = delaylog.ManualClock()
    async with delaylog.open_async(tmp_path / "f", clock=clock) as broker:
        await broker.send("t", "x", delay=timedelta(milliseconds=30 * 86_400_000))
        waiting = asyncio.create_task(broker.receive("t", wait=timedelta(seconds=30)))
        await asyncio.sleep(0)
        await broker.advance(days=30, ms=-1)
        assert await waiting == []
        await broker.advance(ms=1)
        (message,) = await broker.receive("t")
        assert message.deliver_at_ms == clock.now_ms()


async def test_only_a_manual_clock_is_moved(tmp_path: Path) -> None:
    async with delaylog.open_async(tmp_path / "f") as broker:
        with pytest.raises(TypeError, match="ManualClock"):
            await broker.advance(days=1)


async def test_the_folder_is_free_afterwards_and_calls_say_so(tmp_path: Path) -> None:
    async with delaylog.open_async(tmp_path / "f") as broker:
        with pytest.raises(ConfigError, match="in use by this very process"):
            async with delaylog.open_async(tmp_path / "f"):
                pass
        waiting = asyncio.create_task(broker.receive("t", wait=timedelta(minutes=1)))
        await asyncio.sleep(0.01)
        began = monotonic()
    with pytest.raises(ClosedError):
        await waiting
    assert monotonic() - began < 50
    with pytest.raises(ClosedError):
        await broker.topics()
    async with delaylog.open_async(tmp_path / "f") as again:
        assert await again.topics() == []

"""Sends that are handed over: in order, on the disk when somebody asks, refusals never unseen."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import delaylog
from delaylog.broker.embedded import ClosedError, EmbeddedBroker, ManualClock
from delaylog.client import errors


@pytest.mark.parametrize("manual", [True, False])
def test_they_are_sent_in_order_and_safe_after_a_flush(
    nodes: Any, open_embedded: Any, manual: bool
) -> None:
    broker = open_embedded(clock=ManualClock() if manual else None)
    sendings = [broker.send_soon("t", f"{k}") for k in range(300)]
    broker.flush(timeout=timedelta(seconds=30))
    assert all(sending.done() and sending.exception() is None for sending in sendings)
    assert nodes[0].log_commits.commits < 150
    messages = broker.receive("t", max=300)
    assert [message.text for message in messages] == [f"{k}" for k in range(300)]
    assert [sending.result().id for sending in sendings] == [message.id for message in messages]


def test_a_result_waits_for_the_disk(open_embedded: Any, monkeypatch: Any) -> None:
    broker = open_embedded(fsync="always")
    broker.send("t", "x")
    sync, go_on = os.fdatasync, threading.Event()

    def slow(fd: int) -> None:
        assert go_on.wait(20)
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    sending = broker.send_soon("t", "y")
    assert not sending.done()
    with pytest.raises(asyncio.InvalidStateError):
        sending.exception()
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        sending.result(timeout=timedelta(seconds=0.01))
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        broker.flush(timeout=timedelta(seconds=0.01))
    go_on.set()
    assert sending.result(timeout=timedelta(seconds=20)).result == "created"
    assert sending.done()


def test_a_refusal_that_nobody_asked_for_comes_out_of_flush(
    broker: EmbeddedBroker[ManualClock],
) -> None:
    def clash() -> Any:
        return broker.send_soon("t", "x", id="a", merge="reject", delay=timedelta(minutes=1))

    clash()
    seen, other, unseen = clash(), clash(), clash()
    assert isinstance(seen.exception(), errors.IdInUse)
    with pytest.raises(errors.IdInUse):
        other.result()
    with pytest.raises(errors.SendFailed) as failed:
        broker.flush()
    assert (failed.value.rows, failed.value.failures) == (1, (unseen.exception(),))
    broker.flush()


@pytest.mark.parametrize("error", [None, KeyError("of the program")])
def test_or_out_of_close(open_embedded: Any, tmp_path: Path, error: Exception | None) -> None:
    """Not where an error is on its way out already; the folder is free either way."""

    def program() -> None:
        with open_embedded(tmp_path / "f", clock=ManualClock()) as broker:
            for _ in range(2):
                broker.send_soon("t", "x", id="a", merge="reject", delay=timedelta(minutes=1))
            if error is not None:
                raise error

    with pytest.raises(errors.SendFailed if error is None else KeyError):
        program()
    assert open_embedded(tmp_path / "f", clock=ManualClock()).stats("t").counts.waiting == 1


def test_what_is_wrong_with_a_message_is_raised_at_once(
    broker: EmbeddedBroker[ManualClock],
) -> None:
    with pytest.raises(ValueError, match="delay"):
        broker.send_soon("t", "x", delay=timedelta(milliseconds=5), deliver_at_ms=7)
    broker.flush()
    broker.close()
    with pytest.raises(ClosedError):
        broker.send_soon("t", "x")


async def test_in_a_loop_there_is_room_and_a_flush_that_gives_up(
    tmp_path: Path, monkeypatch: Any
) -> None:
    async with delaylog.open_async(tmp_path / "f", fsync="always") as broker:
        await broker.send("t", "x")
        sync, go_on = os.fdatasync, threading.Event()

        def slow(fd: int) -> None:
            assert go_on.wait(20)
            sync(fd)

        monkeypatch.setattr(os, "fdatasync", slow)
        monkeypatch.setattr("delaylog.broker.embedded.async_broker.PENDING_MAX", 2)
        await broker.room()
        sendings = [broker.send_soon("t", f"{k}") for k in range(2)]
        with pytest.raises(TimeoutError):
            await broker.flush(timeout=timedelta(seconds=0.01))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(broker.room(), 0.01)
        go_on.set()
        await broker.room()
        await broker.flush(timeout=timedelta(seconds=20))
        assert all(sending.exception() is None for sending in sendings)


async def test_messages_become_visible_together(open_embedded: Any, tmp_path: Path) -> None:
    broker = open_embedded()
    with broker.transaction() as together:
        together.stage("t", [b"a", b"b"])
        assert broker.receive("t") == []
    got: list[str] = []
    while len(got) < 2:
        got += [message.text for message in broker.receive("t", max=2, wait=timedelta(seconds=10))]
    assert got == ["a", "b"]
    async with delaylog.open_async(tmp_path / "async") as queue:
        async with queue.transaction() as together:
            await together.stage("t", [b"a"])
        (message,) = await queue.receive("t", wait=timedelta(seconds=10))
        assert message.text == "a"

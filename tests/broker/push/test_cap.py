"""The cap of attempts in flight: bursts do not pass it, and idle targets do not use it up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from delaylog.broker.engine.push.commands import drop_target
from delaylog.broker.push.pump import Share
from tests.broker.push.receivers import OK, Receiver, Slow, answer, hang
from tests.broker.push.test_pusher import Pushing, pushing

pytestmark = pytest.mark.processes
MOST = 20
NAMES = [f"t{number}" for number in range(30)]


async def acked(push: Pushing, count: int) -> None:
    """Return once each target has acked this number."""
    for name in NAMES:
        await push.counts(name, acked=count, leased=0, dead=0)


async def test_a_burst_on_warm_idle_targets_does_not_pass_the_cap(tmp_path: Path) -> None:
    """All pumps were permitted ten attempts while none was in flight; then all get messages."""
    slow = Slow()
    async with Receiver(slow) as receiver, pushing(tmp_path, receiver, attempts_max=MOST) as push:
        for name in NAMES:
            push.topic(name)
            push.target(receiver, name, timeout_ms=10_000)
            push.it.send(12, topic=name)
        await acked(push, 12)
        # All targets are warm. Every pump waits for messages, and none holds a slot.
        await push.it.until(lambda: push.pusher.share.in_flight == 0)
        await asyncio.sleep(0.1)
        assert not push.pusher.share.is_full
        for name in NAMES:
            push.it.send(12, topic=name)
        await acked(push, 24)
        await push.it.until(lambda: push.pusher.share.in_flight == 0)
    assert 10 < slow.most <= MOST
    attempts = [headers["ce-attempt"] for _, headers, _ in receiver.requests]
    # What came back for want of room has used up no retries, and nothing was pushed twice.
    assert attempts == ["1"] * 24 * len(NAMES)


async def test_idle_targets_do_not_use_up_the_cap(tmp_path: Path) -> None:
    """While others hang, a target gets the slot that is left, whatever the idle ones wait for."""
    async with (
        Receiver(hang) as hanging,
        Receiver(answer(200)) as receiver,
        pushing(tmp_path, hanging, receiver, attempts_max=2) as push,
    ):
        for name in NAMES:
            push.topic(name)
            push.target(receiver, name)
        push.topic("bad")
        push.target(hanging, "bad", timeout_ms=60_000)
        push.it.send(topic="bad")
        await hanging.arrived.wait()
        for name in NAMES:
            push.it.send(2, topic=name)
        await acked(push, 2)
        # An attempt returns its slot once its ack is answered, a moment after the ack counts.
        await push.it.until(lambda: push.pusher.share.in_flight == 1)


async def test_pumps_without_a_slot_are_woken_by_ends_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While all slots are in use nobody asks for room again and again."""
    asked = 0
    room = Share.room

    def counted(self: Share, in_flight: int) -> int:
        nonlocal asked
        asked += 1
        return room(self, in_flight)

    async with Receiver(hang) as hanging, pushing(tmp_path, hanging, attempts_max=2) as push:
        for name in NAMES:
            push.topic(name)
            push.target(hanging, name, timeout_ms=60_000)
            push.it.send(3, topic=name)
        await push.it.until(lambda: push.pusher.share.is_full)
        await asyncio.sleep(0.5)
        monkeypatch.setattr(Share, "room", counted)
        await asyncio.sleep(1)
        assert asked <= 10
        # Messages that may not be attempted are not leased.
        assert sum(push.group(name).counts.leased for name in NAMES) == 2


async def test_a_target_that_is_replaced_while_it_waits_for_a_slot_loses_none(
    tmp_path: Path,
) -> None:
    go_on = asyncio.Event()

    async def held(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.write(OK)

    async with (
        Receiver(held) as hanging,
        Receiver(answer(200)) as receiver,
        pushing(tmp_path, hanging, receiver, attempts_max=1) as push,
    ):
        bad = push.topic("bad")
        push.target(hanging, "bad", timeout_ms=60_000)
        push.it.send(topic="bad")
        await hanging.arrived.wait()
        # The attempt goes on until its end.
        drop_target(push.it.engine.state, bad, bad.default, push.it.clock.now_ms())
        push.topic()
        push.it.send(3)
        push.target(receiver)
        await asyncio.sleep(0.3)
        assert not receiver.requests
        push.target(receiver, concurrency=2)
        go_on.set()
        await push.counts(acked=3)
        await push.it.until(lambda: push.pusher.share.in_flight == 0)


async def test_failed_attempts_of_one_target_take_one_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn takes a second here: ten of them would take 10 s."""
    async with Receiver(answer(200)) as receiver, pushing(tmp_path, receiver) as push:
        push.topic()
        push.target(receiver)
        push.it.send(20)
        await push.counts(acked=20)
        monkeypatch.setattr(push.pusher.share.failing, "_seconds", 1.0)
        await push.pusher.share.failing.next()
        receiver.script = answer(500)
        began = asyncio.get_running_loop().time()
        push.it.send(10)
        await push.it.until(lambda: push.health().open_until_ms > 0)
        await push.counts(leased=0)
        assert asyncio.get_running_loop().time() - began < 6

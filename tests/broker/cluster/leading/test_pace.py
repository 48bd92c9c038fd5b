"""Calls that wait for the gate of a leader."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.cluster.leading.gate import Pace
from delaylog.broker.engine.errors import NotLeadingError


class _Led:
    """A leader whose gate the test opens and shuts."""

    def __init__(self) -> None:
        self.open = False
        self.replication: Any = SimpleNamespace(
            leadership=SimpleNamespace(
                busy=True, may_append=lambda: True, may_dispatch=lambda now: self.open
            )
        )
        machine = SimpleNamespace(boot_ms=lambda: 0)
        node: Any = SimpleNamespace(machine=machine, clock=SimpleNamespace(now_ms=lambda: 0))
        self.pace = Pace(
            node,
            serving=lambda: self.replication,
            committed=lambda: 0,
            rearm=lambda: None,
        )

    def set(self, *, is_open: bool) -> None:
        self.open = is_open
        self.pace.look()


async def test_a_hand_over_waits_for_the_answers_that_wait_for_the_gate() -> None:
    led, told = _Led(), []

    async def answer(number: int) -> None:
        assert await led.pace.until_gate_open(5)
        told.append(number)

    async def hand_over() -> None:
        assert await led.pace.until_none_waits(5)
        told.append(-1)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(answer(0))
        tasks.create_task(hand_over())
        await asyncio.sleep(0)
        for number in range(1, 20):
            tasks.create_task(answer(number))
        await asyncio.sleep(0)
        led.set(is_open=True)
    assert told[-1] == -1
    assert sorted(told) == list(range(-1, 20))


async def test_a_gate_that_shuts_at_once_is_waited_for_again() -> None:
    led = _Led()
    waiting = asyncio.create_task(led.pace.until_none_waits(5))
    await asyncio.sleep(0)
    led.set(is_open=True)
    led.set(is_open=False)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    led.set(is_open=True)
    assert await waiting


async def test_a_gate_that_stays_shut_is_not_waited_for_any_longer() -> None:
    assert not await _Led().pace.until_none_waits(0.01)


async def test_nobody_waits_at_a_node_that_leads_no_more() -> None:
    led = _Led()
    led.replication = None
    with pytest.raises(NotLeadingError):
        await led.pace.until_none_waits(5)

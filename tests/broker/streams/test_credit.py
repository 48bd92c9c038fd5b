"""The credit of a stream: what is given and taken, and who waits for it."""

from __future__ import annotations

import asyncio

import pytest

from delaylog.broker.calls.answers import Problem
from delaylog.broker.streams.flow import Credit
from delaylog.contract.calls.streams import CREDIT_BYTES_MAX


async def test_both_numbers_must_be_above_zero() -> None:
    for messages, size, there in ((1, 1, True), (0, 1, False), (1, 0, False), (1, -5, False)):
        assert bool(Credit(messages, size, 10)) is there


async def test_bytes_may_be_overdrawn_and_are_owed() -> None:
    credit = Credit(10, 100, 10)
    credit.take(1, 1_000)
    assert not credit
    credit.give(0, 900)
    assert not credit
    credit.give(0, 1)
    assert credit


@pytest.mark.parametrize(("messages", "size"), [(1, 0), (0, 1)])
async def test_more_than_can_be_used_is_refused_and_changes_nothing(
    messages: int, size: int
) -> None:
    credit = Credit(10, CREDIT_BYTES_MAX, 10)
    with pytest.raises(Problem, match="the credit would be"):
        credit.give(messages, size)
    assert (credit.messages, credit.bytes) == (10, CREDIT_BYTES_MAX)


async def test_waiting() -> None:
    credit = Credit(0, 1, 10)
    assert not await credit.wait(0.01)
    waiting = asyncio.create_task(credit.wait(10))
    await asyncio.sleep(0)
    credit.give(1, 0)
    assert await waiting
    credit.take(1, 0)
    assert not await credit.wait(0.01)

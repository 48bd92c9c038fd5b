"""Large sends leave turns of the loop to single ones, and wait for nothing while there are none.

Purpose: who waits, in which order, and that nobody who gives up takes a turn along.
Method: tasks that note the turn in which they were let through.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time

import pytest

from delaylog.broker.host import background
from delaylog.broker.host.background import GAP_TURNS, TurnShares, Turnstile


class Turns:
    """Counts turns of the loop, and who passed in which."""

    def __init__(self) -> None:
        self.shares = TurnShares(time.monotonic)
        self.now = 0
        self.passed: list[tuple[str, int]] = []
        asyncio.get_running_loop().call_soon(self._count)

    def _count(self) -> None:
        self.now += 1
        asyncio.get_running_loop().call_soon(self._count)

    def send(self, name: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._send(name))

    async def _send(self, name: str) -> None:
        await self.shares.wait_for_turn()
        self.passed.append((name, self.now))


async def test_alone_they_all_pass_at_once() -> None:
    turns = Turns()
    await asyncio.gather(*map(turns.send, "abc"))
    assert len({turn for _, turn in turns.passed}) == 1


async def test_beside_single_sends_they_pass_one_by_one() -> None:
    turns = Turns()
    turns.shares.note_single_send()
    await asyncio.gather(*map(turns.send, "abcd"))
    assert [name for name, _ in turns.passed] == list("abcd")
    at = [turn for _, turn in turns.passed]
    assert all(b - a > GAP_TURNS for a, b in itertools.pairwise(at))


async def test_they_go_on_when_no_single_send_is_expected_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "BESIDE_SECONDS", -1.0)
    turns = Turns()
    turns.shares.note_single_send()
    await asyncio.gather(*map(turns.send, "abc"))
    assert len({turn for _, turn in turns.passed}) == 1


@pytest.mark.parametrize("turns_later", range(2 * GAP_TURNS + 4))
async def test_who_gives_up_takes_no_turn_along(turns_later: int) -> None:
    """Whenever that is: before its turn, as its turn comes, or after it."""
    turns = Turns()
    turns.shares.note_single_send()
    a, b, c = map(turns.send, "abc")
    for _ in range(turns_later):
        await asyncio.sleep(0)
    b.cancel()
    await asyncio.gather(a, b, c, return_exceptions=True)
    await turns.send("d")
    assert [name for name, _ in turns.passed if name != "b"] == list("acd")


async def test_a_gap_of_long_turns_ends_by_time() -> None:
    """So that callers keep a share of a loop whose other calls take long; alone they do not wait
    for the first turn, and do for each further one.
    """
    now = itertools.count().__next__
    for gap_s_max, turns_apart in ((2, 3), (math.inf, GAP_TURNS + 2)):
        turns, stile = Turns(), Turnstile(now, gap_s_max=gap_s_max)
        passed: list[int] = []
        for _ in range(3):
            await stile.pass_one()
            passed.append(turns.now)
        assert passed[0] == 0
        assert passed[2] - passed[1] == turns_apart

"""A hand-over on purpose: who gets the lead, and how whoever asked learns how it ended."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.cluster.cluster_node import ClusterNode
from delaylog.broker.cluster.leading.lead import Handover, furthest


def _leader(**places: tuple[int, bool]) -> SimpleNamespace:
    progress = {
        int(peer.removeprefix("node")): SimpleNamespace(match=match, counts=counts)
        for peer, (match, counts) in places.items()
    }
    return SimpleNamespace(progress=progress)


def test_the_voter_that_holds_most_is_the_furthest() -> None:
    leader: Any = _leader(node2=(700, True), node3=(900, True), node4=(950, False))
    assert furthest(leader, {2, 3, 4}) == 3, "a learner cannot lead"
    assert furthest(leader, {2, 4}) == 2, "nor can a node that is away"


def test_nobody_is_the_furthest_among_learners() -> None:
    leader: Any = _leader(node2=(700, False), node3=(900, True))
    assert furthest(leader, {2}) is None


@pytest.mark.parametrize("done", [True, False])
async def test_whoever_asked_learns_how_it_ended(done: bool) -> None:
    handover = Handover()
    ended = handover.begin(3)
    assert handover.give() == 3
    assert handover.target is None, "it is given once"
    assert not ended.done()
    handover.end(done=done)
    handover.end(done=not done)
    assert await ended is done


async def test_one_that_nobody_took_is_given_to_nobody_later() -> None:
    handover = Handover()
    ended = handover.begin(2)
    handover.end(done=False)
    assert handover.target is None
    assert not await ended


async def test_a_node_that_ends_waits_for_the_hand_over_that_is_under_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While it is, another one is refused at once, and a leader that is gone costs an election."""
    handover, asked = Handover(), []

    async def hand_over(target: int | None) -> int | None:
        asked.append(target)
        return None

    member = SimpleNamespace(
        leading=True,
        config=SimpleNamespace(others=(2, 3)),
        hand_over=hand_over,
        until_handed_over=handover.until_over,
    )
    caller = asyncio.create_task(_ask(handover))
    await asyncio.sleep(0)
    caller.cancel()
    leaving = asyncio.create_task(ClusterNode(None, member).leave())  # type: ignore[arg-type]
    await asyncio.sleep(0.02)
    assert (asked, leaving.done()) == ([], False)
    member.leading = False
    handover.end(done=True)
    await leaving
    assert (asked, caplog.messages) == ([], [])


async def _ask(handover: Handover) -> bool:
    """As a call that its client leaves."""
    return await asyncio.shield(handover.begin(2))

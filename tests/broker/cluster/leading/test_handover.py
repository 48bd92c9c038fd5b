"""A hand-over on purpose: who gets the lead, and how whoever asked learns how it ended."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from delaylog.broker.cluster.leading.lead import Handover, furthest


def _leader(**places: tuple[int, bool]) -> SimpleNamespace:
    progress = {
        int(peer.removeprefix("node")): SimpleNamespace(match=match, counts=counts)
        for peer, (match, counts) in places.items()
    }
    return SimpleNamespace(progress=progress)


def test_the_voter_that_holds_most_is_the_furthest() -> None:
    leader = _leader(node2=(700, True), node3=(900, True), node4=(950, False))
    assert furthest(leader) == 3, "a learner cannot lead"  # type: ignore[arg-type]


def test_nobody_is_the_furthest_among_learners() -> None:
    assert furthest(_leader(node2=(700, False))) is None  # type: ignore[arg-type]


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

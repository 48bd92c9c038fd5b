"""A hand-over on purpose, and sends that wait for acks=leader and acks=all.

Who gets the lead, and how whoever asked learns how it ended; who is told when that a send is safe,
and what is said when a voter is away. A stand-in for the leadership says how safe the log is; the
deadline is shortened by the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.cluster.cluster_node import ClusterNode
from delaylog.broker.cluster.leading import lead
from delaylog.broker.cluster.leading.lead import Handover, NotEverywhereError, SafeSends, furthest
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.replication.leader import Acks, Progress


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


# --------------------------------------------------------------------------- safe sends


@dataclass
class Leading:
    """How far the log is safe."""

    own: int = 0
    commit: int = 0
    everywhere: int = 0
    progress: dict[int, Progress] = field(default_factory=dict)

    def safe_end(self, acks: Acks) -> int:
        return {Acks.LEADER: self.own, Acks.ALL: self.everywhere}[acks]


class Calls:
    """The callbacks that were called, with their errors, in order."""

    def __init__(self) -> None:
        self.made: list[tuple[str, BaseException | None]] = []

    def by(self, name: str) -> Callable[[BaseException | None], None]:
        return lambda error: self.made.append((name, error))


def make_sends() -> Any:
    """Takes the stand-in for a leader."""
    return SafeSends(asyncio.get_running_loop(), lambda node: f"n{node}")


async def test_each_is_told_when_its_own_promise_holds() -> None:
    sends, calls, leading = make_sends(), Calls(), Leading(own=5)
    sends.add(leading, 5, Acks.LEADER, calls.by("at once"))
    sends.add(leading, 10, Acks.LEADER, calls.by("here"))
    sends.add(leading, 10, Acks.ALL, calls.by("everywhere"))
    leading.own = leading.commit = 10
    sends.progress(leading)
    sends.progress(leading)
    leading.everywhere = 10
    sends.progress(leading)
    assert [name for name, _ in calls.made] == ["at once", "here", "everywhere"]


async def test_a_voter_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the deadline it is said who lacks it; learners do not count, and nobody waits on."""
    monkeypatch.setattr(lead, "ALL_SECONDS", 0.02)
    sends, calls, leading = (
        make_sends(),
        Calls(),
        Leading(own=10, commit=10, everywhere=4),
    )
    leading.progress = {
        2: Progress(10, match=10),
        3: Progress(4, match=4),
        5: Progress(0, counts=False),
    }
    sends.add(leading, 10, Acks.ALL, calls.by("late"))
    sends.add(leading, 12, Acks.ALL, calls.by("not even committed"))
    while len(calls.made) < 2:  # noqa: ASYNC110 (the deadline changes it)
        await asyncio.sleep(0)
    leading.everywhere = 12
    sends.progress(leading)
    (_, first), (_, second) = calls.made
    assert isinstance(first, NotEverywhereError)
    assert first.code == "not_ready"
    assert first.facts == {"committed": True, "missing": ["n3"]}
    assert "a majority has it" in first.detail
    assert isinstance(second, NotEverywhereError)
    assert second.facts == {"committed": False, "missing": ["n2", "n3"]}
    assert "no majority is known to have it" in second.detail


async def test_the_end_of_a_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    """All who wait are told once, and the deadline says nothing behind it."""
    monkeypatch.setattr(lead, "ALL_SECONDS", 0.02)
    sends, calls, leading, why = (
        make_sends(),
        Calls(),
        Leading(),
        NotLeadingError("over"),
    )
    sends.add(leading, 10, Acks.LEADER, calls.by("leader"))
    sends.add(leading, 10, Acks.ALL, calls.by("all"))
    sends.fail_all(why)
    await asyncio.sleep(0.05)
    assert calls.made == [("leader", why), ("all", why)]

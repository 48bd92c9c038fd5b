"""Waits for acks=leader and acks=all: who is told when, and what is said when a voter is away.

A stand-in for the leadership says how safe the log is; the deadline is shortened by the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from delaylog.broker.cluster.leading import lead
from delaylog.broker.cluster.leading.lead import NotEverywhereError, SafeSends
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.replication.leader import Acks, Progress


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

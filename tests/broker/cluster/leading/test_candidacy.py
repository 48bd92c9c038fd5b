"""What the election's word makes a member do: ask for the lead, keep it, or let it go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from delaylog.broker.cluster.member_counts import MemberCounts
from delaylog.broker.cluster.member_oracle import READMIT_EVERY_MS, Candidacy
from delaylog.replication.replica import Now


class _Replication:
    """Takes note of what it is told; leads while `leader` is there."""

    def __init__(self) -> None:
        self.said: list[object] = []
        self.leader: Any = None

    def lead(self, *, age_ms: int | None, progress: dict[int, Any] | None = None) -> None:
        gate = SimpleNamespace(age_ms=lambda now_ms: age_ms)
        self.leader = SimpleNamespace(gate=gate, progress=progress or {})

    def suggest_leader(self, now: Now) -> None:
        self.said.append("lead")

    def unsuggest_leader(self) -> None:
        self.said.append("let go")

    def readmit(self, peer: int) -> bool:
        self.said.append(peer)
        return True


def _at(boot_ms: int) -> Now:
    return Now(boot_ms, 1_700_000_000_000 + boot_ms)


def test_the_chosen_one_asks_each_time_and_counts_once() -> None:
    counts, replication = MemberCounts(), _Replication()
    candidacy = Candidacy(counts)
    for boot_ms in (0, 20, 40):
        candidacy.look(replication, _at(boot_ms), chosen=True, silence_ms=250)  # type: ignore[arg-type]
    assert replication.said == ["lead"] * 3
    assert counts.chosen == 1


def test_who_is_not_chosen_any_more_lets_go_once() -> None:
    replication, candidacy = _Replication(), Candidacy(MemberCounts())
    for chosen in (False, True, False, False):
        candidacy.look(replication, _at(0), chosen=chosen, silence_ms=250)  # type: ignore[arg-type]
    assert replication.said == ["lead", "let go"]


def test_a_leader_that_is_followed_stays_until_it_is_not() -> None:
    replication, candidacy = _Replication(), Candidacy(MemberCounts())
    candidacy.look(replication, _at(0), chosen=True, silence_ms=250)  # type: ignore[arg-type]
    replication.lead(age_ms=249)
    candidacy.look(replication, _at(20), chosen=False, silence_ms=250)  # type: ignore[arg-type]
    assert replication.said == ["lead", "lead"]
    replication.lead(age_ms=250)
    candidacy.look(replication, _at(40), chosen=False, silence_ms=250)  # type: ignore[arg-type]
    assert replication.said[2:] == ["let go"]


def known(peer: int) -> bool:
    """All voters have met the learner's folder."""
    return True


def test_a_leader_lets_learners_in_now_and_then() -> None:
    replication, candidacy = _Replication(), Candidacy(MemberCounts())
    learner, voter = (SimpleNamespace(counts=is_in, voter=is_in) for is_in in (False, True))
    candidacy.readmit(replication, _at(1_000), known)  # type: ignore[arg-type]
    assert replication.said == [], "it does not lead"
    replication.lead(age_ms=0, progress={2: learner, 3: voter})
    for boot_ms in (1_000, 1_000 + READMIT_EVERY_MS - 1):
        candidacy.readmit(replication, _at(boot_ms), known)  # type: ignore[arg-type]
    assert replication.said == [2]
    candidacy.readmit(replication, _at(1_000 + READMIT_EVERY_MS), known)  # type: ignore[arg-type]
    assert replication.said == [2, 2]
    strange = 1_000 + 2 * READMIT_EVERY_MS
    candidacy.readmit(replication, _at(strange), lambda peer: False)  # type: ignore[arg-type]
    assert replication.said == [2, 2], "another voter has not met its folder"

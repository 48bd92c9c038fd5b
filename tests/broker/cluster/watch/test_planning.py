"""When a leader moves the leadership: spaced, with back-off, and only for a reason."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.cluster.watch.fitness import (
    PRIORITY_AFTER_MS,
    PRIORITY_EVERY_MS,
    RETRY_MS,
    RETRY_MS_MAX,
    Me,
    Move,
    Peer,
    Planner,
    Reason,
    Unfit,
)

STEP_MS = 100


def peer(node: int, **changed: Any) -> Peer:
    return Peer(node=node, name=f"node-{node}", **changed)


def run(
    planner: Planner, me: Me, peers: list[Peer], *, start_ms: int, span_ms: int, done: bool = False
) -> list[tuple[int, Move]]:
    """The moves that are begun while nothing changes, each of which ends at once."""
    moves = []
    for now_ms in range(start_ms, start_ms + span_ms + 1, STEP_MS):
        move = planner.look(me, peers, now_ms)
        if move is not None:
            moves.append((now_ms, move))
            planner.ended(done=done)
    return moves


def test_a_fit_leader_of_equal_priority_stays() -> None:
    peers = [peer(2), peer(3, priority=49)]
    assert run(Planner(), Me(), peers, start_ms=0, span_ms=120_000) == []


def test_an_unfit_leader_goes_at_once_to_another_zone() -> None:
    peers = [peer(2, zone="a"), peer(3, zone="b")]
    move = Planner().look(Me(Unfit.FULL, zone="a"), peers, 1_000_000)
    assert move == Move(peers[1], Reason.FULL)


def test_nobody_is_able() -> None:
    peers = [peer(2, full=True), peer(3, connected=False)]
    planner = Planner()
    assert run(planner, Me(Unfit.SLOW), peers, start_ms=0, span_ms=60_000) == []
    (move,) = run(planner, Me(Unfit.SLOW), [peer(2)], start_ms=60_100, span_ms=0)
    assert move[1].reason is Reason.SLOW, "the first one that is able is taken at once"


def test_failures_are_backed_off() -> None:
    moves = run(Planner(), Me(Unfit.FULL), [peer(2)], start_ms=0, span_ms=300_000)
    times = [at_ms for at_ms, _ in moves]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert gaps[:4] == [RETRY_MS, RETRY_MS * 2, RETRY_MS * 4, RETRY_MS * 8]
    assert set(gaps[4:]) == {RETRY_MS_MAX}


def test_one_move_at_a_time() -> None:
    planner = Planner()
    assert planner.look(Me(Unfit.FULL), [peer(2)], 0) is not None
    for now_ms in range(0, 120_000, STEP_MS):
        assert planner.look(Me(Unfit.FULL), [peer(2)], now_ms) is None


def test_a_higher_priority_has_to_last() -> None:
    planner, higher = Planner(), [peer(2, priority=51), peer(3)]
    start_ms = 100_000
    assert run(planner, Me(), higher, start_ms=start_ms, span_ms=PRIORITY_AFTER_MS - STEP_MS) == []
    start_ms += PRIORITY_AFTER_MS
    gone = [peer(2, priority=51, full=True), peer(3)]
    assert run(planner, Me(), gone, start_ms=start_ms, span_ms=0) == []
    start_ms += STEP_MS
    moves = run(planner, Me(), higher, start_ms=start_ms, span_ms=90_000)
    times = [at_ms - start_ms for at_ms, _ in moves]
    assert times == [PRIORITY_AFTER_MS, PRIORITY_AFTER_MS + PRIORITY_EVERY_MS]
    assert {move.reason for _, move in moves} == {Reason.PRIORITY}


def test_the_highest_of_those_that_lasted() -> None:
    planner = Planner()
    peers = [peer(2, priority=70), peer(3, priority=90)]
    run(planner, Me(), peers, start_ms=0, span_ms=PRIORITY_AFTER_MS - STEP_MS)
    (move,) = run(planner, Me(), peers, start_ms=PRIORITY_AFTER_MS, span_ms=0)
    assert move[1].target.node == 3


def test_the_time_in_which_it_did_not_lead_does_not_count() -> None:
    planner, higher = Planner(), [peer(2, priority=51)]
    run(planner, Me(), higher, start_ms=0, span_ms=1_000)
    assert run(planner, Me(), higher, start_ms=60_000, span_ms=PRIORITY_AFTER_MS - STEP_MS) == []


steps = st.tuples(
    st.sampled_from([None, *Unfit]), st.booleans(), st.integers(0, 100), st.integers(1, 4_000)
)


@given(st.lists(steps, max_size=150), st.lists(st.booleans(), min_size=150, max_size=150))
def test_moves_are_spaced_whatever_happens(
    plan: list[tuple[Unfit | None, bool, int, int]], ends: list[bool]
) -> None:
    planner, now_ms = Planner(), 0
    last_ms: dict[bool, int] = {}
    for (unfit, full, priority, step_ms), done in zip(plan, ends, strict=False):
        now_ms += step_ms
        peers = [peer(2, full=full, priority=priority)]
        move = planner.look(Me(unfit), peers, now_ms)
        if move is None:
            continue
        planner.ended(done=done)
        assert not full, "only to a node that is able"
        by_priority = move.reason is Reason.PRIORITY
        assert not by_priority or (unfit is None and priority > 50)
        least_ms = PRIORITY_EVERY_MS if by_priority else RETRY_MS
        assert now_ms - last_ms.get(by_priority, -least_ms) >= least_ms
        last_ms[by_priority] = now_ms

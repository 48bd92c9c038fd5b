"""When a leader moves the leadership and to whom, and who lets others be elected first.

Moves are spaced, with back-off, and only for a reason. Last: when a node takes itself for unfit, by
tables of readings, and no flapping whatever they are.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.cluster.watch.fitness import (
    CUT_AGAIN_MS,
    CUT_OFF_MS,
    CUT_OFF_MS_MAX,
    CUT_ON_MS,
    FULL_OFF_MS,
    FULL_ON_MS,
    GAP_MS,
    HANGS_ON_MS,
    LAG_BYTES_MAX,
    PRIORITY_AFTER_MS,
    PRIORITY_EVERY_MS,
    RETRY_MS,
    RETRY_MS_MAX,
    SLOW_OFF_MS,
    SLOW_ON_MS,
    Fitness,
    Judge,
    Me,
    Move,
    Peer,
    Planner,
    Reason,
    Unfit,
    best,
    refusal,
)
from delaylog.broker.cluster.watch.fitness_watch import (
    CUT_MS,
    LEADER_MS,
    PRIORITY_MS,
    UNFIT_MS,
    stands_back,
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


# --------------------------------------------------------------------------- targets


GAMMA = Peer(node=3, name="gamma")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"connected": False}, "gamma is not connected"),
        ({"votes": False}, "gamma is a learner and cannot lead yet"),
        ({"silent_ms": 1_700}, "gamma is stopped: its last status came 1.7 s ago"),
        ({"unfit": "full", "free_bytes": 5_000}, "gamma has a full disk: 5,000 bytes are free"),
        ({"full": True}, "gamma has a full disk: 0 bytes are free for messages"),
        ({"unfit": "slow", "sync_ms": 1_250}, "gamma has a slow disk: a sync takes 1,250 ms"),
        ({"unfit": "haunted"}, "gamma is not fit to lead: haunted"),
        ({"lag_bytes": LAG_BYTES_MAX + 1}, "gamma lacks 8,388,609 bytes of the log, more than"),
        ({"unapplied_bytes": LAG_BYTES_MAX + 1}, "gamma has 8,388,609 bytes of the log to apply"),
    ],
)
def test_who_cannot_take_it(changed: dict[str, Any], words: str) -> None:
    """The first reason that holds, with its figure."""
    said = refusal(replace(GAMMA, **changed))
    assert said is not None
    assert said.startswith(words)
    assert "\n" not in said


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"silent_ms": 1_500},
        {"lag_bytes": LAG_BYTES_MAX},
        {"unapplied_bytes": LAG_BYTES_MAX},
        {"sync_ms": 5_000},
    ],
)
def test_who_can(changed: dict[str, Any]) -> None:
    assert refusal(replace(GAMMA, **changed)) is None


@pytest.mark.parametrize(
    ("peers", "expected"),
    [
        ([], None),
        ([peer(2, full=True), peer(3, connected=False)], None),
        ([peer(2), peer(3)], 2),
        ([peer(2, lag_bytes=10), peer(3)], 3),
        ([peer(2, sync_ms=9), peer(3, sync_ms=4)], 3),
        ([peer(2, priority=60, lag_bytes=10), peer(3)], 2),
        ([peer(2, priority=60, full=True), peer(3)], 3),
        # Away from zone a: with equal priority elsewhere, but never at the cost of priority.
        ([peer(2, zone="a"), peer(3, zone="b", lag_bytes=10)], 3),
        ([peer(2, zone="a", priority=60), peer(3, zone="b")], 2),
        ([peer(2, zone="a"), peer(3, zone="a", lag_bytes=10)], 2),
    ],
)
def test_who_should(peers: list[Peer], expected: int | None) -> None:
    found = best(peers, away_from="a")
    assert (None if found is None else found.node) == expected


def test_zones_count_only_when_moving_away() -> None:
    peers = [peer(2, zone="a"), peer(3, zone="b", lag_bytes=10)]
    found = best(peers)
    assert found is not None
    assert found.node == 2


# --------------------------------------------------------------------------- standing back


@pytest.mark.parametrize(
    ("me", "peers", "until_ms"),
    [
        (Me(), [], 0),
        (Me(), [peer(2)], 0),
        (Me(priority=60), [peer(2)], 0),
        (Me(), [peer(2, priority=51)], PRIORITY_MS),
        (Me(), [peer(2, priority=51, full=True)], 0),
        (Me(Unfit.FULL), [peer(2)], UNFIT_MS),
        (Me(Unfit.SLOW, priority=60), [peer(2)], UNFIT_MS),
        (Me(Unfit.FULL), [peer(2, full=True)], 0),
        (Me(Unfit.FULL), [peer(2, connected=False)], 0),
        (Me(Unfit.CUT), [peer(2)], CUT_MS),
        (Me(Unfit.CUT), [peer(2, unfit="cut")], 0),
    ],
)
def test_it_stands_back_for_a_bounded_time(me: Me, peers: list[Peer], until_ms: int) -> None:
    """While the leader is heard it would stand, as a transfer asks it to."""
    back = [ms for ms in range(0, 2 * CUT_MS, 50) if stands_back(me, peers, ms)]
    assert back == list(range(LEADER_MS, until_ms, 50))


# --------------------------------------------------------------------------- judgement of a node


FULL = Fitness(full=True)
HUNG = Fitness(sync_ms=2_000, sync_fresh=True, sync_hangs=True)
FINE = Fitness(sync_ms=5, sync_fresh=True)


def judged(
    judge: Judge, mine: Fitness, others: list[int], *, start_ms: int, span_ms: int
) -> Unfit | None:
    """The same reading all the time."""
    for now_ms in range(start_ms, start_ms + span_ms + 1, STEP_MS):
        judge.look(mine, others, now_ms)
    return judge.unfit


@pytest.mark.parametrize(
    ("mine", "others", "span_ms", "expected"),
    [
        (FULL, [], FULL_ON_MS - STEP_MS, None),
        (FULL, [], FULL_ON_MS, Unfit.FULL),
        (Fitness(cut=True), [], CUT_ON_MS - STEP_MS, None),
        (Fitness(cut=True), [], CUT_ON_MS, Unfit.CUT),
        (Fitness(clock_off=True), [], 0, Unfit.CLOCK),
        (Fitness(clock_off=True, full=True), [], FULL_ON_MS, Unfit.FULL),
        (Fitness(full=True, sync_ms=900, sync_fresh=True), [3], SLOW_ON_MS, Unfit.FULL),
        (Fitness(sync_ms=400, sync_fresh=True), [100, 300], SLOW_ON_MS, Unfit.SLOW),
        (Fitness(sync_ms=400, sync_fresh=True), [100, 300], SLOW_ON_MS - STEP_MS, None),
        (Fitness(sync_ms=399, sync_fresh=True), [100], SLOW_ON_MS, None),
        (Fitness(sync_ms=199, sync_fresh=True), [1], SLOW_ON_MS, None),
        (HUNG, [300], HANGS_ON_MS, Unfit.SLOW),
        (HUNG, [300], HANGS_ON_MS - STEP_MS, None),
        (HUNG, [600], SLOW_ON_MS, None),
        (Fitness(sync_ms=200, sync_fresh=True), [1], SLOW_ON_MS, Unfit.SLOW),
        # Nobody to compare with: the others have not synced, or are unfit themselves.
        (Fitness(sync_ms=9_000, sync_fresh=True), [], SLOW_ON_MS, None),
        (Fitness(sync_ms=9_000, sync_fresh=True), [0, 0], SLOW_ON_MS, None),
        (Fitness(), [3], SLOW_ON_MS, None),
        (Fitness(sync_ms=400), [20], SLOW_ON_MS, None),
    ],
)
def test_what_makes_unfit(
    mine: Fitness, others: list[int], span_ms: int, expected: Unfit | None
) -> None:
    assert judged(Judge(), mine, others, start_ms=0, span_ms=span_ms) is expected


@pytest.mark.parametrize(
    ("bad", "between", "off_ms"),
    [
        (FULL, FULL, FULL_OFF_MS),
        (Fitness(sync_ms=400, sync_fresh=True), Fitness(sync_ms=120, sync_fresh=True), SLOW_OFF_MS),
    ],
)
def test_it_takes_longer_to_be_fit_again(bad: Fitness, between: Fitness, off_ms: int) -> None:
    """And a reading that is not good begins the wait anew."""
    judge = Judge()
    unfit = judged(judge, bad, [20], start_ms=0, span_ms=SLOW_ON_MS)
    assert unfit is not None
    at_ms = SLOW_ON_MS + STEP_MS
    assert judged(judge, FINE, [20], start_ms=at_ms, span_ms=off_ms - STEP_MS) is unfit
    at_ms += off_ms
    assert judged(judge, between, [20], start_ms=at_ms, span_ms=0) is unfit
    at_ms += STEP_MS
    assert judged(judge, FINE, [20], start_ms=at_ms, span_ms=off_ms - STEP_MS) is unfit
    assert judged(judge, FINE, [20], start_ms=at_ms + off_ms, span_ms=STEP_MS) is None


def test_a_slow_node_without_traffic_stays_so_until_its_syncs_are_forgotten() -> None:
    judge = Judge()
    slow, quiet = Fitness(sync_ms=400, sync_fresh=True), Fitness(sync_ms=3)
    assert judged(judge, slow, [20], start_ms=0, span_ms=SLOW_ON_MS) is Unfit.SLOW
    at_ms = SLOW_ON_MS + STEP_MS
    assert judged(judge, quiet, [20], start_ms=at_ms, span_ms=2 * SLOW_OFF_MS) is Unfit.SLOW
    at_ms += 2 * SLOW_OFF_MS + STEP_MS
    assert judged(judge, Fitness(), [20], start_ms=at_ms, span_ms=SLOW_OFF_MS) is None


def test_a_node_that_is_cut_off_again_and_again_is_unfit_for_longer() -> None:
    """A network that loses long segments only looks sound until it has to carry one."""

    def unfit_ms(judge: Judge, at_ms: int) -> int:
        """How long it stays unfit while log arrives, after it was cut off."""
        assert judged(judge, Fitness(cut=True), [], start_ms=at_ms, span_ms=CUT_ON_MS) is Unfit.CUT
        began_ms = at_ms = at_ms + CUT_ON_MS
        judged(judge, Fitness(), [], start_ms=at_ms, span_ms=2 * CUT_OFF_MS)
        began_ms = at_ms = at_ms + 2 * CUT_OFF_MS
        while judge.look(Fitness(cut=False), [], at_ms) is Unfit.CUT:
            assert not judge.is_cut
            at_ms += 1_000
        return at_ms - began_ms

    judge, at_ms, spans = Judge(), 0, []
    for _ in range(12):
        spans.append(unfit_ms(judge, at_ms))
        at_ms += spans[-1] + 20_000
    assert spans[:4] == [CUT_OFF_MS << doublings for doublings in range(4)]
    assert spans[-1] == CUT_OFF_MS_MAX
    assert unfit_ms(judge, at_ms + CUT_AGAIN_MS) == CUT_OFF_MS


def test_a_pause_of_the_process_proves_nothing() -> None:
    judge = Judge()
    judge.look(FULL, [], 0)
    assert judge.look(FULL, [], GAP_MS + FULL_ON_MS) is None
    assert judge.look(FULL, [], GAP_MS + 2 * FULL_ON_MS) is Unfit.FULL


readings = st.tuples(
    st.builds(Fitness, full=..., sync_ms=st.integers(0, 1_000), sync_fresh=...),
    st.integers(1, 3_000),
)


@given(st.lists(readings, max_size=200), st.integers(0, 300))
def test_it_never_flaps(steps: list[tuple[Fitness, int]], other_ms: int) -> None:
    """Each judgement needed its whole time of readings that agreed."""
    judge, now_ms = Judge(), 0
    seen: Unfit | None = None
    full_since: int | None = None
    free_since: int | None = None
    changes: list[tuple[int, Unfit | None]] = []
    for mine, step_ms in steps:
        if step_ms > GAP_MS:
            full_since = free_since = None
        now_ms += step_ms
        full_since = (now_ms if full_since is None else full_since) if mine.full else None
        free_since = None if mine.full else (now_ms if free_since is None else free_since)
        unfit = judge.look(mine, [other_ms], now_ms)
        if unfit is Unfit.FULL and seen is not Unfit.FULL:
            assert full_since is not None
            assert now_ms - full_since >= FULL_ON_MS
        if seen is Unfit.FULL and unfit is not Unfit.FULL:
            assert free_since is not None
            assert now_ms - free_since >= FULL_OFF_MS
        if unfit is not seen:
            changes.append((now_ms, unfit))
        seen = unfit
    fit_again = [at_ms for at_ms, unfit in changes if unfit is None]
    for before_ms, after_ms in itertools.pairwise(fit_again):
        assert after_ms - before_ms >= FULL_ON_MS + FULL_OFF_MS

"""When a node takes itself for unfit: tables of readings, and no flapping whatever they are."""

from __future__ import annotations

import itertools

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
    SLOW_OFF_MS,
    SLOW_ON_MS,
    Fitness,
    Judge,
    Unfit,
)

STEP_MS = 100
FULL = Fitness(full=True)
HUNG = Fitness(sync_ms=2_000, sync_fresh=True, sync_hangs=True)
FINE = Fitness(sync_ms=5, sync_fresh=True)


def run(
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
    assert run(Judge(), mine, others, start_ms=0, span_ms=span_ms) is expected


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
    unfit = run(judge, bad, [20], start_ms=0, span_ms=SLOW_ON_MS)
    assert unfit is not None
    at_ms = SLOW_ON_MS + STEP_MS
    assert run(judge, FINE, [20], start_ms=at_ms, span_ms=off_ms - STEP_MS) is unfit
    at_ms += off_ms
    assert run(judge, between, [20], start_ms=at_ms, span_ms=0) is unfit
    at_ms += STEP_MS
    assert run(judge, FINE, [20], start_ms=at_ms, span_ms=off_ms - STEP_MS) is unfit
    assert run(judge, FINE, [20], start_ms=at_ms + off_ms, span_ms=STEP_MS) is None


def test_a_slow_node_without_traffic_stays_so_until_its_syncs_are_forgotten() -> None:
    judge = Judge()
    slow, quiet = Fitness(sync_ms=400, sync_fresh=True), Fitness(sync_ms=3)
    assert run(judge, slow, [20], start_ms=0, span_ms=SLOW_ON_MS) is Unfit.SLOW
    at_ms = SLOW_ON_MS + STEP_MS
    assert run(judge, quiet, [20], start_ms=at_ms, span_ms=2 * SLOW_OFF_MS) is Unfit.SLOW
    at_ms += 2 * SLOW_OFF_MS + STEP_MS
    assert run(judge, Fitness(), [20], start_ms=at_ms, span_ms=SLOW_OFF_MS) is None


def test_a_node_that_is_cut_off_again_and_again_is_unfit_for_longer() -> None:
    """A network that loses long segments only looks sound until it has to carry one."""

    def unfit_ms(judge: Judge, at_ms: int) -> int:
        """How long it stays unfit while log arrives, after it was cut off."""
        assert run(judge, Fitness(cut=True), [], start_ms=at_ms, span_ms=CUT_ON_MS) is Unfit.CUT
        began_ms = at_ms = at_ms + CUT_ON_MS
        run(judge, Fitness(), [], start_ms=at_ms, span_ms=2 * CUT_OFF_MS)
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

"""Wall times to instants, against an oracle that walks over UTC.

A golden table has what the oracle said of the times around each clock change. Random expressions
around random changes are compared with the oracle itself.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.rules.schedules.instants import next_instant
from delaylog.broker.rules.schedules.timing import Timing
from tests.broker.rules.schedules.oracle import (
    TURNS,
    Case,
    all_cases,
    instants,
    read_table,
    seconds,
    utc,
)
from tests.broker.rules.schedules.walk import walk
from tests.effort import tries

ROWS = read_table()
ROWS_BY_CASE = dict(ROWS)
CHANGES = [line.split() for line in TURNS.split("\n") if line]


def ours(case: Case) -> list[int]:
    """The instants of a case by the product, in seconds."""
    timing = Timing(cron=case.cron, zone=case.zone, gap=case.gap, fold=case.fold)
    found = list(walk(timing, case.from_s * 1_000 - 1, case.to_s * 1_000))
    assert all(at % 1_000 == 0 for at in found)
    return [at // 1_000 for at in found]


def test_the_table_has_what_it_is_for() -> None:
    """At least 300 instants in 12 zones, both forms and all policies, and no case but ours."""
    assert [case for case, _ in ROWS] == all_cases()
    assert len({case.zone for case, _ in ROWS}) >= 12
    assert sum(len(found) for _, found in ROWS) >= 300
    assert {case.six for case, _ in ROWS} == {True, False}
    policies = {(case.gap, case.fold) for case, _ in ROWS}
    assert {gap for gap, _ in policies} == {"next", "skip"}
    assert {fold for _, fold in policies} == {"first", "second", "both"}


@pytest.mark.parametrize("zone", sorted({case.zone for case, _ in ROWS}))
def test_instants_are_those_of_the_table(zone: str) -> None:
    """Every case of the zone, from its first instant on."""
    for case, found in ROWS:
        if case.zone == zone:
            assert [utc(at) for at in ours(case)] == [utc(at) for at in found], case


@pytest.mark.parametrize("case", all_cases()[::25], ids=lambda case: case.zone)
def test_the_oracle_still_makes_the_table(case: Case) -> None:
    """A sample, since the walk takes a minute for the whole: the stored lines are the oracle's."""
    assert ROWS_BY_CASE[case] == instants(case)


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    """A field: a star, a step, a range, or a list."""
    number = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        st.integers(2, 30).map(lambda step: f"*/{step}"),
        st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}"),
        st.sets(number, min_size=1, max_size=3).map(lambda some: ",".join(map(str, some))),
    )


FIELDS = st.tuples(numbers(0, 59), numbers(0, 23), st.just("*"), st.just("*"), numbers(0, 6))


@settings(max_examples=tries(300), deadline=None)
@given(
    st.sampled_from(CHANGES),
    FIELDS,
    st.sampled_from(["next", "skip"]),
    st.sampled_from(["first", "second", "both"]),
    st.integers(-180, 180),
)
def test_instants_are_the_oracles(
    change: list[str], fields: tuple[str, ...], gap: str, fold: str, shift: int
) -> None:
    """From any minute near the change, over six hours."""
    zone, turn = change[0], seconds(change[1])
    start = turn - turn % 60 + shift * 60
    case = Case(zone, " ".join(fields), gap, fold, start, start + 6 * 3_600)
    assert ours(case) == instants(case)


@settings(max_examples=tries(200), deadline=None)
@given(
    st.sampled_from(CHANGES),
    FIELDS,
    st.sampled_from(["first", "second", "both"]),
    st.integers(-10_000_000, 10_000_000),
    st.integers(-10_000_000, 10_000_000),
)
def test_no_instant_depends_on_where_the_search_begins(
    change: list[str], fields: tuple[str, ...], fold: str, some_ms: int, other_ms: int
) -> None:
    """A search from between two instants finds the later of them, whatever the millisecond."""
    turn_ms = seconds(change[1]) * 1_000
    timing = Timing(cron=" ".join(fields), zone=change[0], fold=fold)
    low, high = sorted((turn_ms + some_ms, turn_ms + other_ms))
    found = next_instant(timing, low)
    assert found is None or found > low
    if found is not None and found > high:
        assert next_instant(timing, high) == found

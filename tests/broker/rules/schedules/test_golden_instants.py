"""The golden table: instants around clock changes, made by an oracle that walks over UTC."""

from __future__ import annotations

import pytest

from delaylog.broker.rules.schedules.instants import next_instant
from delaylog.broker.rules.schedules.timing import check_timing
from tests.broker.rules.schedules.oracle import Case, all_cases, instants, read_table, utc

ROWS = read_table()
ROWS_BY_CASE = dict(ROWS)


def ours(case: Case) -> list[int]:
    """The instants of a case by the product, in seconds."""
    timing = check_timing(
        {"cron": case.cron, "zone": case.zone, "gap": case.gap, "fold": case.fold}
    )
    found, at = [], next_instant(timing, case.from_s * 1_000 - 1)
    while at is not None and at < case.to_s * 1_000:
        assert at % 1_000 == 0
        found.append(at // 1_000)
        at = next_instant(timing, at)
    return found


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

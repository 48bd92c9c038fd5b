"""Wall times to instants: random expressions around random clock changes against the oracle."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.rules.schedules.instants import next_instant
from delaylog.broker.rules.schedules.timing import Timing
from tests.broker.rules.schedules.oracle import TURNS, Case, instants, seconds
from tests.effort import tries

CHANGES = [line.split() for line in TURNS.split("\n") if line]


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
    timing = Timing(cron=case.cron, zone=zone, gap=gap, fold=fold)
    found, at = [], next_instant(timing, start * 1_000 - 1)
    while at is not None and at < case.to_s * 1_000:
        found.append(at // 1_000)
        at = next_instant(timing, at)
    assert found == instants(case)


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

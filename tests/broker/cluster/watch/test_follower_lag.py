"""The lag of followers beside the time of each byte, which a plain list keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.cluster.watch.member_watch import BOUNDS, NOTES_MAX, FollowerLag

POLL_MS = 20
STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=200
)
"""At each poll: bytes that are appended, and that each of two followers takes."""


@given(STEPS)
def test_the_lag_is_the_age_of_the_first_missing_byte(steps: list[tuple[int, int, int]]) -> None:
    lag = FollowerLag()
    appended_ms: list[int] = []
    matches = {2: 0, 3: 0}
    sums_ms = {2: 0, 3: 0}
    for number, (more, *taken) in enumerate(steps):
        now_ms = number * POLL_MS
        appended_ms += [now_ms] * more
        for node, count in zip(matches, taken, strict=True):
            matches[node] = min(matches[node] + count, len(appended_ms))
            if matches[node] < len(appended_ms):
                sums_ms[node] += now_ms - appended_ms[matches[node]]
        lag.look(now_ms, len(appended_ms), matches)
    for node, sum_ms in sums_ms.items():
        histogram = lag.histograms[str(node),]
        assert histogram.count == len(steps)
        assert round(histogram.sum * 1000) == sum_ms


def test_a_follower_that_is_away_costs_bounded_memory() -> None:
    """Its lag is still known, if less exactly."""
    lag = FollowerLag()
    polls = 20 * NOTES_MAX
    for number in range(polls):
        lag.look(number * POLL_MS, number + 1, {2: 0, 3: number + 1})
    assert len(lag._ends) == len(lag._times_ms) <= NOTES_MAX
    away, near = lag.histograms["2",], lag.histograms["3",]
    assert near.counts[0] == polls
    over_300_s = polls - 300_000 // POLL_MS
    assert 0.95 * over_300_s < away.counts[len(BOUNDS)] <= over_300_s


def test_a_node_that_does_not_lead_samples_nothing() -> None:
    """Nor does its time count when it leads later: what is there is as old as the last poll."""
    lag = FollowerLag()
    lag.look(0, 100, {})
    lag.look(5_000, 200, {})
    assert not lag.histograms
    lag.look(5_020, 300, {2: 150})
    assert lag.histograms["2",].sum == 0.02

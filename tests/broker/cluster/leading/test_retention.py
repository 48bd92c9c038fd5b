"""How much log a leader keeps for its followers: a table of places and what that comes to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from delaylog.broker.cluster.replication_host import LOG_KEPT_BYTES, FollowerPositions, log_needed


@pytest.mark.parametrize(
    ("places", "needed"),
    [
        ([], 5_000),
        ([5_000, 5_000], 5_000),
        ([4_500, 5_000], 4_500),
        ([1_000, 4_500], 1_000),
        # Its place is gone already, so it gets a copy: nothing is kept for it.
        ([999, 4_500], 4_500),
        ([0, 4_500], 4_500),
        ([0, 0], 5_000),
    ],
)
def test_who_is_near_holds_the_log(places: list[int], needed: int) -> None:
    assert log_needed(places, first=1_000, end=5_000) == needed


def test_nobody_holds_more_than_the_bound() -> None:
    end = 3 * LOG_KEPT_BYTES
    at = end - LOG_KEPT_BYTES
    assert log_needed([at, end], first=0, end=end) == at
    assert log_needed([at - 1, end], first=0, end=end) == end


def test_who_was_never_heard_holds_what_is_there_within_the_bound() -> None:
    """It stands where the log began when this node started, until it says better."""
    assert log_needed([1_000], first=1_000, end=5_000) == 1_000
    assert log_needed([1_000], first=1_000, end=2_000 + LOG_KEPT_BYTES) == 2_000 + LOG_KEPT_BYTES


def test_a_follower_stands_where_the_leader_knows_else_where_it_said() -> None:
    places = FollowerPositions(1_000)
    places.heard(2, 3_000)
    places.heard(3, 4_000)
    matches = {2: 3_500, 3: 0, 4: 0}
    leader = SimpleNamespace(
        progress={peer: SimpleNamespace(match=match) for peer, match in matches.items()}
    )
    assert places.of(leader) == [3_500, 4_000, 1_000]  # type: ignore[arg-type]

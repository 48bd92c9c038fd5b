"""Who can take the leadership, in what words it is refused, and who should have it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from delaylog.broker.cluster.watch.fitness import LAG_BYTES_MAX, Peer, best, refusal

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


def peer(node: int, **changed: Any) -> Peer:
    return Peer(node=node, name=f"node-{node}", **changed)


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

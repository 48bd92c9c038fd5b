"""Cluster sizes, and what a majority has reached."""

from __future__ import annotations

import pytest

from delaylog.replication.errors import ClusterError
from delaylog.replication.members import Members


@pytest.mark.parametrize(("size", "majority"), [(1, 1), (3, 2), (5, 3), (7, 4)])
def test_odd_clusters_decide_by_majority(size: int, majority: int) -> None:
    members = Members(tuple(range(size)))
    assert members.majority == majority
    assert members.others(0) == tuple(range(1, size))
    assert members.reached(range(10, 10 + size)) == 10 + size - majority
    assert members.reached([10] * majority) == 10
    assert members.reached([10] * (majority - 1)) == 0


@pytest.mark.parametrize("size", [0, 2, 4, 6, 8, 9])
def test_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(ClusterError, match="1, 3, 5, 7"):
        Members(tuple(range(size)))


@pytest.mark.parametrize("nodes", [(1, 1, 2), (0, 1, 70_000), (-1, 0, 1)])
def test_indexes_are_distinct_and_fit(nodes: tuple[int, ...]) -> None:
    with pytest.raises(ClusterError):
        Members(nodes)

"""Configurations: sizes, majorities of one and of two sides, steps of a change, bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from delaylog.replication.configuration import Configuration
from delaylog.replication.errors import ClusterError

THREE = Configuration((0, 1, 2))


@pytest.mark.parametrize(("size", "majority"), [(1, 1), (3, 2), (5, 3), (7, 4)])
def test_a_majority_decides(size: int, majority: int) -> None:
    nodes = Configuration.founding(range(size))
    assert nodes.others(0) == tuple(range(1, size))
    assert nodes.reached({node: 10 + node for node in range(size)}) == 10 + size - majority
    assert nodes.reached(dict.fromkeys(range(majority), 10)) == 10
    assert nodes.reached(dict.fromkeys(range(majority - 1), 10)) is None
    assert nodes.agree(range(majority))
    assert not nodes.agree(range(majority - 1))


@pytest.mark.parametrize("size", [0, 2, 4, 6, 8, 9])
def test_a_cluster_is_founded_with_an_odd_number(size: int) -> None:
    with pytest.raises(ClusterError, match="1, 3, 5, 7"):
        Configuration.founding(range(size))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Configuration.founding((1, 1, 2)),
        lambda: Configuration((2, 1, 0)),
        lambda: Configuration((0, 1, 70_000)),
        lambda: Configuration((-1, 0, 1)),
        lambda: Configuration(tuple(range(8))),
        lambda: Configuration((), version=1),
        lambda: Configuration((0,), learners=(0,)),
        lambda: Configuration((0,), outgoing=(1,), removed=(1,)),
    ],
)
def test_nonsense_is_refused(make: Callable[[], Configuration]) -> None:
    with pytest.raises(ClusterError):
        make()


def test_a_change_needs_both_sides_until_it_is_settled() -> None:
    joint = THREE.with_learners((3, 4)).with_voters((2, 3, 4))
    assert (joint.voters, joint.outgoing, joint.learners) == ((2, 3, 4), (0, 1, 2), ())
    assert joint.changing
    assert not joint.agree((2, 3, 4))
    assert not joint.agree((0, 1, 3))
    assert joint.agree((0, 2, 3))
    assert joint.reached({0: 9, 1: 8, 2: 5, 3: 7, 4: 4}) == 5
    settled = joint.settled()
    assert settled == Configuration((2, 3, 4), removed=(0, 1), version=3)
    assert settled.agree((2, 3))
    assert settled.others(2) == (3, 4)


def test_learners_decide_nothing() -> None:
    one = THREE.with_learners((7,))
    assert one.nodes == (0, 1, 2, 7)
    assert one.deciding == (0, 1, 2)
    assert not one.agree((0, 7))
    assert one.with_learners(()).removed == (7,)


def test_who_was_removed_may_come_back() -> None:
    without = THREE.with_voters((0, 1)).settled()
    assert without.removed == (2,)
    back = without.with_learners((2,))
    assert back.removed == ()
    assert back.with_voters((0, 1, 2)).settled().removed == ()


def test_nobody_agrees_with_nobody() -> None:
    assert not Configuration(()).agree((0, 1, 2))


def test_bytes_bring_it_back() -> None:
    assert THREE.encode() == b""
    assert Configuration.decode(b"") is None
    joint = THREE.with_learners((7,)).with_voters((0, 1, 7))
    assert Configuration.decode(joint.encode()) == joint


@pytest.mark.parametrize(
    "payload", [b"\xc1", msgpack.packb([1]), msgpack.packb({"voters": [1], "more": 2}), b"\x80"]
)
def test_bytes_that_are_none_are_refused(payload: Any) -> None:
    with pytest.raises(ClusterError):
        Configuration.decode(payload)

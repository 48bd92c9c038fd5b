"""The static oracle: what it suggests, and that only a transfer changes that."""

from __future__ import annotations

from delaylog.replication.oracle import LeaderOracle, StaticOracle


def test_static() -> None:
    oracle: LeaderOracle = StaticOracle(1, leader=1)
    assert oracle.suggests(0)
    oracle.resign(0, 1_000)
    assert oracle.suggests(1)
    oracle.transfer(2, 5)
    assert (oracle.suggests(6), oracle.leader(6)) == (False, 2)

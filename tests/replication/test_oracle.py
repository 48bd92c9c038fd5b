"""Oracles: what they suggest, and that a resignation keeps a node out."""

from __future__ import annotations

from delaylog.replication.oracle import LeaderOracle, ScriptedOracle, StaticOracle


def test_static() -> None:
    oracle: LeaderOracle = StaticOracle(1, leader=1)
    assert oracle.suggests(0)
    oracle.resign(0, 1_000)
    assert oracle.suggests(1)
    oracle.transfer(2, 5)
    assert (oracle.suggests(6), oracle.leader(6)) == (False, 2)


def test_scripted() -> None:
    oracle = ScriptedOracle(1, [(100, 1), (300, None), (400, 2)])
    assert [oracle.leader(ms) for ms in (0, 100, 299, 300, 400)] == [None, 1, 1, None, 2]
    assert [oracle.suggests(ms) for ms in (0, 100, 300, 400)] == [False, True, False, False]
    oracle.resign(100, 200)
    assert [oracle.suggests(ms) for ms in (100, 199, 200)] == [False, False, True]
    oracle.transfer(1, 500)
    assert oracle.suggests(500)
    assert oracle.transfers == [(500, 1)]

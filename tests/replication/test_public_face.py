"""The names that replication offers."""

from __future__ import annotations

from delaylog import replication


def test_public_names() -> None:
    assert replication.__all__ == sorted(replication.__all__)
    assert all(hasattr(replication, name) for name in replication.__all__)
    assert {"ReplicationNode", "MetaFile", "Decoder", "LeaderOracle"} <= set(replication.__all__)
    assert len(replication.__all__) == 23

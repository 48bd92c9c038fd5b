"""The names that the connections between nodes offer."""

from __future__ import annotations

from delaylog.broker.cluster import peers


def test_public_names() -> None:
    assert peers.__all__ == sorted(peers.__all__)
    assert all(hasattr(peers, name) for name in peers.__all__)
    assert set(peers.__all__) == {
        "Levels",
        "PeerCounts",
        "PeerHost",
        "PeerLimits",
        "PeerConfig",
        "PeerTls",
        "PeerTraffic",
        "PeerTransport",
        "Refused",
        "Transport",
    }

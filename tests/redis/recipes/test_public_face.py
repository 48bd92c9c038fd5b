"""The names that the recipes offer."""

from __future__ import annotations

from delaylog.client import recipes


def test_public_names() -> None:
    assert recipes.__all__ == sorted(recipes.__all__)
    assert all(hasattr(recipes, name) for name in recipes.__all__)
    assert {"CamelliaQueue", "DynoQueue", "RedisPyConnection", "RmqTopic"} <= set(recipes.__all__)
    assert len(recipes.__all__) == 29

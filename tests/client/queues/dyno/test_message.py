"""How a message of a Dyno queue prints: by its public name, without what it carries."""

from __future__ import annotations

from delaylog.client.queues import DynoMessage


def test_it_prints_by_its_name_and_without_its_payload() -> None:
    message = DynoMessage("a", "secret", timeout_ms=5, priority=3, shard="b")
    assert repr(message) == (
        "DynoMessage(id='a', timeout_ms=5, priority=3, shard='b', 6 characters)"
    )

"""Holders of a key, over more frames than are kept one by one."""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.engine.late import causes
from tests.broker.engine.views.test_life import lives


def test_bounded(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last holders are one without a name, and no time is lost."""
    monkeypatch.setattr(causes, "HOLDS_MAX", 3)
    host.send(7, ids=[f"m{number}" for number in range(7)], keys="k" * 7)
    origins = []
    for _ in range(6):
        taken = host.receive()
        origins.append(taken[0].origin)
        host.advance(1_000)
        host.ack(taken)
    (life,) = lives(host, ["m6"])
    waits = [(wait.size_ms, wait.origin) for wait in life.waits if wait.cause == "key"]
    assert waits == [(1_000, origins[0]), (1_000, origins[1]), (4_000, 0)]

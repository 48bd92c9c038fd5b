"""The cache of definitions: the least recently used one goes, and bytes are bounded."""

from __future__ import annotations

import pytest

from delaylog.broker.engine.schedules import definitions
from delaylog.broker.engine.schedules.definitions import ENTRY_BYTES, DefinitionCache
from tests.broker.engine.schedules.tables import a_schedule


def test_the_least_recently_used_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes; one that is too large is not kept, nor is what it replaced."""
    monkeypatch.setattr(definitions, "BYTES_MAX", 10 * ENTRY_BYTES)
    cache = DefinitionCache()
    for number in range(1, 11):
        cache.put(a_schedule(number, f"s{number}", 5), 0)
    assert cache.get(1) is not None
    cache.put(a_schedule(11, "s11", 5), 0)
    assert [number for number in range(1, 12) if cache.get(number) is None] == [2]
    cache.put(a_schedule(3, "s3", 5), 5 * ENTRY_BYTES)
    assert cache.get(3) is None
    cache.drop(4)
    cache.drop(4)
    assert cache.get(4) is None
    assert cache._bytes == 8 * ENTRY_BYTES


def test_progress_is_not_kept() -> None:
    """It is in the columns."""
    cache = DefinitionCache()
    cache.put(a_schedule(1, "s", 55), 10)
    found = cache.get(1)
    assert found is not None
    assert found.name == "s"
    assert found.progress.next_ms == 0

"""Fixtures: hosts of engines with small segments, whose folders are copied."""

from __future__ import annotations

import pytest

from tests.broker.engine.fixtures import host, host_class, open_host

__all__ = ["host", "host_class", "open_host"]


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaylog.storage.log.physical_log.SEGMENT_BYTES_MAX", 4_000)

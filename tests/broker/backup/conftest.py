"""Fixtures: hosts of engines with small segments, whose folders are copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.engine.fixtures import host
from tests.broker.engine.host import Host

__all__ = ["host"]


@pytest.fixture
def host_class() -> type[Host]:
    return Host


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaylog.storage.log.physical_log.SEGMENT_BYTES_MAX", 4_000)


@pytest.fixture
def open_host(tmp_path: Path, host_class: type[Host]) -> Iterator[Callable[[], Host]]:
    opened: list[Host] = []

    def make() -> Host:
        opened.append(host_class(tmp_path / str(len(opened))))
        return opened[-1]

    yield make
    for each in opened:
        each.close()

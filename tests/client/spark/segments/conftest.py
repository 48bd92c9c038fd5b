"""Hosts: real engines with a folder of their own, under a clock of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.engine.host import Host


@pytest.fixture
def open_host(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    """Opens hosts, each in a folder of its own, and closes them in the end."""
    opened: list[Host] = []

    def make(**how: Any) -> Host:
        opened.append(Host(tmp_path / f"host{len(opened)}", **how))
        return opened[-1]

    yield make
    for host in opened:
        host.close()


@pytest.fixture
def host(open_host: Callable[..., Host]) -> Host:
    return open_host()

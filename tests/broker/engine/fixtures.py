"""Fixtures of tests that run an engine; a folder's conftest.py imports those that it offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.engine.host import Host
from tests.broker.engine.member import Member


@pytest.fixture
def open_host(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    """Opens hosts, each in a folder of its own, and closes them in the end."""
    opened: list[Host] = []

    def make(**how: Any) -> Host:
        host = Host(tmp_path / str(len(opened)), **how)
        opened.append(host)
        return host

    yield make
    for host in opened:
        host.close()


@pytest.fixture
def host(open_host: Callable[..., Host]) -> Host:
    """One host with default limits."""
    return open_host()


@pytest.fixture
def host_class() -> type[Host]:
    """The class itself, for tests that open hosts under another life cycle."""
    return Host


@pytest.fixture
def member(tmp_path: Path, host: Host) -> Iterator[Member]:
    """A member of a cluster that can follow `host`, and lead after it."""
    made = Member(tmp_path / "member", host.now_ms)
    yield made
    made.close()

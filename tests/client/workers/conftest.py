"""Fixtures of workers' tests: a live broker, and each test for tasks and for threads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.client.workers.live import KINDS, Kind, Live, Works, live_broker

_namespaces = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_broker(tmp_path_factory.mktemp("broker")) as live:
        yield live


@pytest.fixture
def live(broker: Live) -> Iterator[Live]:
    """A namespace of its own on a broker that many tests share."""
    with (fresh := broker.fresh(f"test{next(_namespaces)}")).client:
        yield fresh


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[Live]:
    """A broker of its own."""
    with live_broker(tmp_path) as live:
        yield live


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def works(live: Live, kind: Kind) -> Works:
    """A worker on the shared broker."""
    return Works(kind, live)

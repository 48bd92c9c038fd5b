"""Embedded brokers in temporary folders, closed at the end; nothing here waits for a real clock."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.embedded import EmbeddedBroker, ManualClock, open_broker
from delaylog.broker.embedded.node import EmbeddedNode


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts a test even if a shell has started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def open_embedded(tmp_path: Path) -> Iterator[Callable[..., EmbeddedBroker[Any]]]:
    """Opens brokers, each in a folder of its own unless one is named."""
    opened: list[EmbeddedBroker[Any]] = []

    def make(folder: Path | None = None, **how: Any) -> EmbeddedBroker[Any]:
        broker = open_broker(folder or tmp_path / f"broker{len(opened)}", **how)
        opened.append(broker)
        return broker

    yield make
    for broker in opened:
        broker.close()


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[EmbeddedNode]:
    """Nodes in the order of their starts, for a test that looks behind the calls of its broker."""
    started: list[EmbeddedNode] = []
    start = EmbeddedNode.start

    def noted(node: EmbeddedNode) -> None:
        started.append(node)
        start(node)

    monkeypatch.setattr(EmbeddedNode, "start", noted)
    return started


@pytest.fixture
def broker(open_embedded: Callable[..., EmbeddedBroker[Any]]) -> EmbeddedBroker[ManualClock]:
    """One under a clock that is moved by hand."""
    return open_embedded(clock=ManualClock(), fsync="never")

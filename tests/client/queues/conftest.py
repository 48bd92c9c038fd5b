"""An embedded broker under a clock that tests move, and real brokers where processes matter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import delaylog
from delaylog.broker.embedded import EmbeddedBroker, ManualClock
from tests.broker.conftest import Broker


@pytest.fixture
def client(tmp_path: Path) -> Iterator[EmbeddedBroker[ManualClock]]:
    """The client of an embedded broker of this test's own."""
    with delaylog.open(tmp_path / "embedded", clock=ManualClock(), fsync="never") as broker:
        yield broker


@pytest.fixture
def clock(client: EmbeddedBroker[ManualClock]) -> ManualClock:
    """The clock of that broker."""
    return client.clock


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker process of this test's own, which it may crash."""
    broker = Broker(tmp_path)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def in_threads() -> Callable[..., None]:
    """Run functions in a thread each; the first failure of any is raised."""

    def run(*targets: Callable[[], object]) -> None:
        failures: list[BaseException] = []

        def guarded(target: Callable[[], object]) -> None:
            try:
                target()
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=guarded, args=(t,), daemon=True) for t in targets]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
            assert not thread.is_alive(), "a thread is stuck"
        if failures:
            raise failures[0]

    return run

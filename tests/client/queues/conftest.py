"""A real broker for all tests of the recipes; each test takes topics of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from delaylog.client import Client
from tests.broker.conftest import Broker

_numbers = count()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that no test harms."""
    broker = Broker(tmp_path_factory.mktemp("queues"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of this test's own, which it may crash."""
    broker = Broker(tmp_path)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def client(shared: Broker) -> Iterator[Client]:
    client = Client(shared.url)
    yield client
    client.close()


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"q{next(_numbers)}"


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

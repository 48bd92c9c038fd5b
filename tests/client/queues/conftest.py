"""A real broker for all tests of the recipes; each test takes topics of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from delaylog.client.child_broker import ChildBroker
from delaylog.client.client import Client

T = TypeVar("T")
_numbers = count()


class LiveBroker:
    """A ChildBroker for tests without a loop: it lives in a loop of its own thread."""

    def __init__(self, folder: Path) -> None:
        self.child = ChildBroker(folder)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self.child.start())

    @property
    def url(self) -> str:
        return self.child.url

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._run(self.child.kill())

    def start(self) -> None:
        """Start it again, on the same folder and port."""
        self._run(self.child.start())

    def close(self) -> None:
        self.kill()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    """A broker that no test harms."""
    broker = LiveBroker(tmp_path_factory.mktemp("queues") / "data")
    yield broker
    broker.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LiveBroker]:
    """A broker of this test's own, which it may kill."""
    broker = LiveBroker(tmp_path / "data")
    yield broker
    broker.close()


@pytest.fixture
def client(shared: LiveBroker) -> Iterator[Client]:
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

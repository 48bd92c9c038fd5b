"""For tests of both clients: their kinds, a topic, two real brokers a file, and coroutine tests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

import delaylog
from delaylog.client import AsyncClient, Client
from delaylog.client.wire import exchange
from tests.broker.conftest import Broker
from tests.client.any_queue import Queue, entered
from tests.client.either import CLIENTS, PLAIN_CLIENTS

LIMIT_S: Final = 180
"""After this time a test that is a coroutine function has failed."""
APART: Final = {
    "job_systems": ("kombu", "make test-redis"),
    "spark": ("pyspark", "make test-spark"),
}
"""Folders whose tests need packages of another environment, and the command that has it."""

collect_ignore = [folder for folder, (package, _) in APART.items() if find_spec(package) is None]


def pytest_report_header() -> list[str]:
    """Say which tests this environment has not."""
    return [
        f"tests/client/{folder}: not collected, since this environment has no {APART[folder][0]};"
        f" `{APART[folder][1]}` runs them"
        for folder in collect_ignore
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    asyncio.run(asyncio.wait_for(test(**arguments), LIMIT_S))
    return True


@pytest.fixture
def no_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that count requests: a machine that stands still for a second looks like a node
    that hangs, and a client would ask another one who leads.
    """
    monkeypatch.setattr(exchange, "QUIET_S", 600.0)


@pytest.fixture(scope="module")
def two_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Their addresses; each test takes topics of its own."""
    brokers = [Broker(tmp_path_factory.mktemp(name)) for name in "ab"]
    try:
        for broker in brokers:
            broker.start()
        yield brokers[0].url, brokers[1].url
    finally:
        for broker in brokers:
            broker.kill()


@pytest.fixture(params=CLIENTS, ids=["async", "sync"])
def make(request: pytest.FixtureRequest) -> Any:
    """The kind of client."""
    return request.param


@pytest.fixture(params=PLAIN_CLIENTS, ids=["async", "sync"])
def plain(request: pytest.FixtureRequest) -> Any:
    """The kind of plain client."""
    return request.param


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Any:
    # Here, since the environments of job systems and Spark have no cryptography.
    from tests.client.certificates import make_certificates

    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def topic() -> str:
    """One that nobody else uses."""
    return f"t-{uuid4().hex}"


@pytest.fixture(params=["client", "async client", "embedded", "async embedded"])
def queue(
    request: pytest.FixtureRequest, two_brokers: tuple[str, str], tmp_path: Path, topic: str
) -> Callable[[], AbstractAsyncContextManager[Queue]]:
    """Opens a topic."""
    made: dict[str, Callable[[], Any]] = {
        "client": lambda: Client(two_brokers[0]),
        "async client": lambda: AsyncClient(two_brokers[0]),
        "embedded": lambda: delaylog.open(tmp_path / "f", fsync="never"),
        "async embedded": lambda: delaylog.open_async(tmp_path / "f", fsync="never"),
    }

    @asynccontextmanager
    async def opened() -> AsyncIterator[Queue]:
        async with entered(made[request.param]()) as client:
            yield Queue(client, topic)

    return opened

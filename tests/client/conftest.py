"""For tests of both clients: their kinds, a topic, two real brokers a file, and coroutine tests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.broker.conftest import Broker
from tests.client.either import CLIENTS

LIMIT_S: Final = 120
"""After this time a test that is a coroutine function has failed."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    asyncio.run(asyncio.wait_for(test(**arguments), LIMIT_S))
    return True


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


@pytest.fixture
def topic() -> str:
    """One that nobody else uses."""
    return f"t-{uuid4().hex}"

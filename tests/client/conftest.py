"""For tests of both clients: their kinds, a topic, and two real brokers, started once a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.broker.conftest import Broker
from tests.client.either import CLIENTS


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

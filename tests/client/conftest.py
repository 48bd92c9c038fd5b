"""Two real brokers for the tests of the clients, started once for each file that asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.conftest import Broker


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

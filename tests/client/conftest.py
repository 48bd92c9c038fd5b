"""Two real brokers for the tests of the clients, started once for each file that asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from delaylog.client.child_broker import ChildBroker


@pytest.fixture(scope="module")
def two_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Their addresses; each test takes topics of its own."""
    folder = tmp_path_factory.mktemp("brokers")
    brokers = [ChildBroker(folder / name) for name in "ab"]
    with asyncio.Runner() as runner:
        try:
            for broker in brokers:
                runner.run(broker.start())
            yield brokers[0].url, brokers[1].url
        finally:
            for broker in brokers:
                runner.run(broker.kill())

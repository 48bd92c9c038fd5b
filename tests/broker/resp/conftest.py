"""A broker with an endpoint for Redis clients, and clients of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from delaylog.client.child_broker import free_port
from tests.broker.conftest import Broker, Secured
from tests.broker.resp.resp_client import RespClient


class RespBroker(Broker):
    """A broker; its endpoint keeps its port over restarts."""

    resp_port = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._clients: list[RespClient] = []

    def start(self) -> None:
        """Start it, with an endpoint on a free port the first time."""
        self.resp_port = self.resp_port or free_port()
        self._options = [
            option.replace("RESP", "127.0.0.1:PORT").replace("PORT", str(self.resp_port))
            for option in self._options
        ]
        super().start()
        assert re.search(rf" resp=\S+:{self.resp_port}$", self.ready_line.rstrip())

    def connect(self, **options: Any) -> RespClient:
        """A client; it is closed with the broker."""
        client = RespClient(self.resp_port, **options)
        self._clients.append(client)
        return client

    def kill(self) -> None:
        """End it at once, and its clients."""
        super().kill()
        for client in self._clients:
            client.close()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., RespBroker]]:
    """Starts brokers with these options; they are gone when the test is."""
    brokers: list[RespBroker] = []

    def start(
        *options: str,
        folder: Path | None = None,
        **how: Any,
    ) -> RespBroker:
        if folder is None:
            folder = tmp_path / f"broker-{len(brokers)}"
            folder.mkdir()
        broker = RespBroker(folder, "--resp", "RESP", *options, **how)
        brokers.append(broker)
        broker.start()
        return broker

    yield start
    for broker in brokers:
        broker.kill()


class RespSecured(Secured):
    """A broker that requires authentication, and its Redis clients."""

    broker: RespBroker

    def connect(self, token: str | None = "", **options: Any) -> RespClient:
        """A client that is logged in: as the administrator by default; None = as nobody."""
        client = self.broker.connect(**options)
        if token is not None:
            assert client.call("AUTH", token or self.admin) == b"OK"
        return client

    def user(self, *grants: str) -> RespClient:
        """A client of a new principal with these grants."""
        return self.connect(self.token(*grants))


@pytest.fixture
def secured_broker(
    start_broker: Callable[..., RespBroker], tmp_path: Path
) -> Callable[..., RespSecured]:
    """Starts a broker that requires authentication."""

    def start(*options: str) -> RespSecured:
        folder = tmp_path / "secured"
        folder.mkdir()
        return RespSecured(start_broker, folder, *options)

    return start


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RespSecured]:
    """The module's broker that requires authentication."""

    def start(*options: str, folder: Path) -> RespBroker:
        broker = RespBroker(folder, "--resp", "RESP", *options)
        broker.start()
        return broker

    secured = RespSecured(start, tmp_path_factory.mktemp("secured"))
    try:
        yield secured
        secured.broker.end_well()
    finally:
        secured.broker.kill()


@pytest.fixture(scope="module")
def resp_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RespBroker]:
    """One for the tests of a module; it must leave well and have logged no error."""
    broker = RespBroker(tmp_path_factory.mktemp("broker"), "--resp", "RESP")
    broker.start()
    try:
        yield broker
        broker.end_well()
    finally:
        broker.kill()


@pytest.fixture
def client(resp_broker: RespBroker) -> Iterator[RespClient]:
    """A client of an empty keyspace."""
    client = resp_broker.connect()
    assert client.call("FLUSHALL") == b"OK"
    yield client
    client.close()

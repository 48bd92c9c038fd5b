"""`endpoint` for the recipes: the module's server of ../conftest.py; each client finds it empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.redis.recipes.connection import RedisPyConnection
from tests.redis.recipes.support import Endpoint, HandClock
from tests.redis.servers import REFERENCE, RedisServer


@pytest.fixture(scope="module")
def endpoint(server: RedisServer) -> Endpoint:
    """A live server."""
    return Endpoint(server.kind, server.port)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A real redis-server beside the endpoint, to compare with."""
    server = RedisServer(REFERENCE, tmp_path_factory.mktemp("beside"))
    try:
        server.start()
        yield Endpoint(server.kind, server.port)
    finally:
        server.remove()


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def client(endpoint: Endpoint, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """An empty database and a client of it, in either protocol."""
    with endpoint.client(protocol=request.param) as made:
        made.flushall()
        yield made


@pytest.fixture
def connection(client: redis.Redis) -> RedisPyConnection:
    """What recipes take."""
    return RedisPyConnection(client)


@pytest.fixture
def clock() -> HandClock:
    """A clock that only tests move."""
    return HandClock()

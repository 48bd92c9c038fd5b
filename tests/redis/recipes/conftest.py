"""For the recipes: a client of the server of ../conftest.py, and a reference to compare with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.redis.recipes.connection import RedisPyConnection
from tests.redis.recipes.support import HandClock
from tests.redis.servers import REFERENCE, RedisServer


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A real redis-server beside the endpoint, to compare with."""
    server = RedisServer(REFERENCE, tmp_path_factory.mktemp("beside"))
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def client(endpoint: RedisServer, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """A client of an empty server, in either protocol."""
    with endpoint.client(protocol=request.param) as made:
        yield made


@pytest.fixture
def connection(client: redis.Redis) -> RedisPyConnection:
    """What recipes take."""
    return RedisPyConnection(client)


@pytest.fixture
def clock() -> HandClock:
    """A clock that only tests move."""
    return HandClock()

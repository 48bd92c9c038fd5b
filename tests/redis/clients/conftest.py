"""`client`: redis-py as it comes (RESP3 since version 8, with its handshake), and held to RESP2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.redis.servers import RedisServer


@pytest.fixture(params=[{}, {"protocol": 2}], ids=["default", "resp2"])
def wire(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options of the connection: none, or the older protocol."""
    return dict(request.param)


@pytest.fixture
def client(endpoint: RedisServer, wire: dict[str, Any]) -> Iterator[redis.Redis]:
    """An empty server, text in and out."""
    with endpoint.client(decode_responses=True, **wire) as client:
        yield client

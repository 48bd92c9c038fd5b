"""Endpoints for the recipes: every test of this folder runs on each endpoint named here.

To let the same tests face another server, add its name and how it is started to `STARTERS`. A
starter answers the port of a server of its own on the loopback, and gives back what stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import redis

from delaylog.client.recipes import RedisPyConnection
from tests.redis.recipes.support import Endpoint, HandClock, start_reference

STARTERS: dict[str, Callable[[ExitStack], int]] = {"reference": start_reference}
"""Name -> starts a server that ends with the stack, answers its port."""


@pytest.fixture(scope="session", params=sorted(STARTERS))
def endpoint(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    """A live server."""
    with ExitStack() as stack:
        yield Endpoint(request.param, STARTERS[request.param](stack))


@pytest.fixture(scope="session")
def reference() -> Iterator[Endpoint]:
    """A real redis-server beside the endpoint, to compare with."""
    with ExitStack() as stack:
        yield Endpoint("reference", start_reference(stack))


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

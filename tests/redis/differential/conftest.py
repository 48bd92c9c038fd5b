"""Pairs of servers for the tests of this folder: the reference twice, and it with ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.redis.differential.endpoints import Endpoint, InProcessEndpoint, SocketEndpoint
from tests.redis.differential.runner import Pair
from tests.redis_reference import reference as start_reference


@pytest.fixture(scope="session")
def reference() -> Iterator[SocketEndpoint]:
    """A redis-server of our own."""
    with start_reference() as server, closing(SocketEndpoint("127.0.0.1", server.port)) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def second() -> Iterator[SocketEndpoint]:
    """Another one, that must agree with the first."""
    with start_reference() as server, closing(SocketEndpoint("127.0.0.1", server.port)) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def twins(reference: SocketEndpoint, second: SocketEndpoint) -> Iterator[Pair]:
    """Reference against reference."""
    with closing(Pair(second, reference)) as pair:
        yield pair


@pytest.fixture(scope="session")
def ours() -> Endpoint:
    """Our executor, in this process."""
    return InProcessEndpoint()


@pytest.fixture(scope="session")
def pair(ours: Endpoint, reference: SocketEndpoint) -> Iterator[Pair]:
    """Ours against the reference."""
    with closing(Pair(ours, reference)) as pair:
        yield pair

"""Pairs of servers for the tests of this folder: the reference twice, and the reference with ours.

Without redis-server what needs it is skipped; the recorded traps need only our side.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.redis.differential.endpoints import Endpoint, InProcessEndpoint, SocketEndpoint
from tests.redis.differential.reference import Reference, installed
from tests.redis.differential.runner import Pair

OURS = "delaylog.broker.resp.inprocess"


@pytest.fixture(scope="session")
def reference() -> Iterator[SocketEndpoint]:
    """A redis-server of our own."""
    if installed() is None:
        pytest.skip("redis-server is not installed")
    with Reference() as server, closing(SocketEndpoint("127.0.0.1", server.port)) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def second() -> Iterator[SocketEndpoint]:
    """Another one, that must agree with the first."""
    if installed() is None:
        pytest.skip("redis-server is not installed")
    with Reference() as server, closing(SocketEndpoint("127.0.0.1", server.port)) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def twins(reference: SocketEndpoint, second: SocketEndpoint) -> Iterator[Pair]:
    """Reference against reference."""
    with closing(Pair(second, reference)) as pair:
        yield pair


@pytest.fixture(scope="session")
def ours() -> Endpoint:
    """Our executor, in this process."""
    if importlib.util.find_spec(OURS) is None:
        pytest.skip(f"{OURS} is not there yet")
    return InProcessEndpoint(OURS)


@pytest.fixture(scope="session")
def pair(ours: Endpoint, reference: SocketEndpoint) -> Iterator[Pair]:
    """Ours against the reference."""
    with closing(Pair(ours, reference)) as pair:
        yield pair

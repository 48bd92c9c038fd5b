"""`endpoint`: an empty Redis server of each kind, for every test below this folder.

One process a kind and test module; each test finds it empty. When a module is done the server is
ended by SIGTERM, must leave with status 0 and must have logged no error: whatever a client sends is
never worth a traceback. A test that needs options, or kills its server, asks `start_server` and
the name of the `kind`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.redis.servers import DELAYLOG, ENDPOINTS, REFERENCE, RedisServer


def pytest_addoption(parser: pytest.Parser) -> None:
    """To work on one kind only."""
    parser.addoption(
        "--endpoint",
        action="append",
        choices=(REFERENCE, DELAYLOG),
        help="test this kind of server only; may be said twice (all in ENDPOINTS)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All tests that have to do with a server run once for each kind."""
    if "kind" in metafunc.fixturenames:
        kinds = metafunc.config.getoption("--endpoint") or ENDPOINTS
        metafunc.parametrize("kind", kinds, indirect=True, scope="module")


@pytest.fixture(scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    """Who is asked: the reference or our broker."""
    return str(request.param)


@pytest.fixture(scope="module")
def server(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The module's server. It leaves cleanly and has logged no error."""
    server = RedisServer(kind, tmp_path_factory.mktemp(kind))
    try:
        server.start()
        yield server
        assert server.terminate() == 0
        server.assert_clean_log()
    finally:
        server.remove()


@pytest.fixture
def endpoint(server: RedisServer) -> RedisServer:
    """The module's server, with no key and no script of an earlier test."""
    with server.client() as client:
        client.flushall()
        client.script_flush()
    return server


@pytest.fixture
def start_server(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., RedisServer]]:
    """Makes servers of the kind, with options, that live no longer than the test."""
    made: list[RedisServer] = []

    def start(**options: Any) -> RedisServer:
        server = RedisServer(kind, tmp_path_factory.mktemp(kind), **options)
        made.append(server)
        server.start()
        return server

    yield start
    for server in made:
        server.remove()

"""`endpoint`: an empty Redis server of each kind, for every test below this folder.

One process a kind and test module; each test finds it empty. When a module is done the server is
ended by SIGTERM, must leave with status 0 and must have logged no error: whatever a client sends is
never worth a traceback. A test that needs options, or kills its server, asks `start_server` and
the `server_kind`.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.redis.servers import DELAYLOG, ENDPOINTS, REFERENCE, RedisServer
from tests.redis.workers import JOBS, Bench


def pytest_addoption(parser: pytest.Parser) -> None:
    """To work on one kind only."""
    parser.addoption(
        "--endpoint",
        action="append",
        choices=(REFERENCE, DELAYLOG),
        help="test this kind of server only; may be said twice (all in ENDPOINTS)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """What clients of others call, and leave to the garbage collector, is their affair."""
    for kind in (
        "DeprecationWarning",
        "ResourceWarning",
        "pytest.PytestUnraisableExceptionWarning",
    ):
        config.addinivalue_line("filterwarnings", f"ignore::{kind}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All tests that have to do with a server run once for each kind."""
    if "server_kind" in metafunc.fixturenames:
        kinds = metafunc.config.getoption("--endpoint") or ENDPOINTS
        metafunc.parametrize("server_kind", kinds, indirect=True, scope="module")


@pytest.fixture(autouse=True, scope="module")
def _others_leave_connections_open() -> Iterator[None]:
    """Collected here, since what is left for the end of the run is judged without our filters."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def server_kind(request: pytest.FixtureRequest) -> str:
    """Who is asked: the reference or our broker."""
    return str(request.param)


@pytest.fixture(scope="module")
def server(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The module's server. It leaves cleanly and has logged no error."""
    server = RedisServer(server_kind, tmp_path_factory.mktemp(server_kind))
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
    server_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., RedisServer]]:
    """Makes servers of the kind, with options, that live no longer than the test."""
    made: list[RedisServer] = []

    def start(**options: Any) -> RedisServer:
        server = RedisServer(server_kind, tmp_path_factory.mktemp(server_kind), **options)
        made.append(server)
        server.start()
        return server

    yield start
    for server in made:
        server.remove()


@pytest.fixture
def bench(endpoint: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """An empty server and a folder, for a job system to work with.

    This process, too, finds the modules of jobs/, which read the environment.
    """
    bench = Bench(endpoint, tmp_path)
    for name, value in bench.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(JOBS)
    return bench

"""A scene is played on every interface that can play it, the embedded broker first.

One broker serves all interfaces of a file's scenes; each scene has a topic of its own. Only the
embedded brokers have a clock that a scene moves, so a scene that says what has not happened yet
needs one; the others wait for what is to come.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Final

import pytest

import delaylog
from delaylog.broker.embedded import ManualClock
from delaylog.client import AsyncClient, Client
from tests.broker.conftest import Broker
from tests.broker.resp.resp_client import RespClient
from tests.scenes.faces.camellia import CamelliaFace
from tests.scenes.faces.clients import AsyncClientFace, ClientFace, EmbeddedFace
from tests.scenes.faces.face import Face
from tests.scenes.faces.http import HttpFace
from tests.scenes.faces.resp import RespFace

LIMITS: Final = "body_bytes_max = 1000"
TIMEOUT_S: Final = 60
"""No promise of a scene is told by it; a busy machine may take seconds for a call."""
FACES: Final[dict[str, type[Face]]] = {
    "embedded": EmbeddedFace,
    "http": HttpFace,
    "resp": RespFace,
    "camellia": CamelliaFace,
    "sync": ClientFace,
    "async": AsyncClientFace,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A scene that asks for a face is made for each one that can play it."""
    if "face" in metafunc.fixturenames:
        needs = getattr(metafunc.function, "needs", frozenset())
        able = [name for name, kind in FACES.items() if not needs & kind.cannot]
        assert "targets" in needs or able[0] == "embedded", "it can play everything else"
        metafunc.parametrize("face", able, indirect=True)


_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Face]]:
    """Makes faces. What a face stands on is started with the first one that needs it."""
    with ExitStack() as opened:
        folder = tmp_path_factory.mktemp("scenes")
        makers: dict[str, Callable[[str], Face]] = {}

        def served() -> Broker:
            broker = Broker(folder, "--resp", "127.0.0.1:0", limits=LIMITS)
            broker.start()
            opened.callback(end, broker)
            return broker

        def make_maker(name: str) -> Callable[[str], Face]:
            if name == "embedded":
                limits = {"body_bytes_max": 1000}
                embedded = delaylog.open(folder / "own", clock=ManualClock(), limits=limits)
                return partial(EmbeddedFace, name, opened.enter_context(embedded))
            broker = brokers[0] if brokers else served()
            brokers[:] = [broker]
            if name == "sync":
                return partial(
                    ClientFace,
                    name,
                    opened.enter_context(Client(broker.url, timeout=timedelta(seconds=TIMEOUT_S))),
                )
            if name == "async":
                runner = opened.enter_context(asyncio.Runner())
                async_client = AsyncClient(broker.url, timeout=timedelta(seconds=TIMEOUT_S))
                runner.run(async_client.__aenter__())
                opened.callback(lambda: runner.run(async_client.close()))
                return lambda topic: AsyncClientFace(name, async_client, topic, runner)
            if name == "resp":
                port = int(broker.ready_line.partition("resp=")[2].split()[0].rpartition(":")[2])
                connection = RespClient(port)
                opened.callback(connection.close)
                return lambda topic: RespFace(name, broker, topic, connection)
            return partial(CamelliaFace if name == "camellia" else HttpFace, name, broker)

        brokers: list[Broker] = []

        def face(name: str) -> Face:
            if name not in makers:
                makers[name] = make_maker(name)
            return makers[name](f"t{next(_numbers)}")

        yield face


def end(broker: Broker) -> None:
    """It leaves with status 0 and has logged no error."""
    try:
        broker.end_well()
    finally:
        broker.kill()


@pytest.fixture
def face(request: pytest.FixtureRequest, stage: Callable[[str], Face]) -> Face:
    return stage(request.param)

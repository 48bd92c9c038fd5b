"""What is wrong with how a client is made, or used elsewhere, is said at once and in its terms."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from delaylog.broker.testing.live_broker import LiveBroker
from delaylog.client import AsyncClient, Client, Hooks

NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("hooks", [Hooks, 5])
def test_hooks_that_hear_nothing_are_refused(
    kind: type[Client] | type[AsyncClient], hooks: object
) -> None:
    with pytest.raises(TypeError, match="an object of a class below Hooks"):
        kind(NOBODY, hooks=hooks)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_is_not_for_another_process(kind: type[Client] | type[AsyncClient]) -> None:
    with pytest.raises(TypeError, match="make one in each process"):
        pickle.dumps(kind(NOBODY))


def test_a_client_is_not_for_another_loop(delaylog_broker: LiveBroker) -> None:
    client = AsyncClient(delaylog_broker.url)

    async def receive() -> None:
        assert await client.receive("t") == []

    async def send() -> None:
        await client.send("t", "body")

    with asyncio.Runner() as first:
        first.run(receive())
        for use in (receive, send):
            with pytest.raises(RuntimeError, match="make one in each"), asyncio.Runner() as second:
                second.run(use())
        first.run(client.close())

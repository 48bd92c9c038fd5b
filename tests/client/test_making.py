"""What is wrong with how a client is made, or used elsewhere, is said at once and in its terms."""

from __future__ import annotations

import asyncio
import gc
import pickle
import warnings
from collections.abc import Callable
from datetime import timedelta

import pytest

from delaylog.client import AsyncClient, Client, Hooks, SendFailed

NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("hooks", [Hooks(), [Hooks], 5])
def test_hooks_that_hear_nothing_are_refused(
    kind: type[Client] | type[AsyncClient], hooks: object
) -> None:
    with pytest.raises(TypeError, match="hooks is a list"):
        kind(NOBODY, hooks=hooks)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_the_environment_gives_the_endpoints(
    kind: type[Client] | type[AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two shards, of which one is a cluster. Arguments win; without a variable it is this machine.

    Only `from_env` insists on the variable.
    """
    monkeypatch.setenv("DELAYLOG_URL", "delaylog://a, delaylog://b:1 https://c/proxy")
    for client in (kind(), kind.from_env(namespace="n")):
        assert [(each.url, each.members) for each in client.shards] == [
            ("http://a:8711", ("http://b:1",)),
            ("https://c/proxy", ()),
        ]
    assert [each.url for each in kind(NOBODY).shards] == [NOBODY]
    monkeypatch.setenv("DELAYLOG_URL", "")
    assert [each.url for each in kind().shards] == ["http://127.0.0.1:8711"]
    with pytest.raises(ValueError, match="DELAYLOG_URL is not set"):
        kind.from_env()


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_is_not_for_another_process(kind: type[Client] | type[AsyncClient]) -> None:
    with pytest.raises(TypeError, match="make one in each process"):
        pickle.dumps(kind(NOBODY))


def told_of(scene: Callable[[], None]) -> list[str]:
    """What is said of clients that are dropped; what aiohttp says of its sessions is left aside."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scene()
        gc.collect()
    return [str(each.message) for each in caught if "AsyncClient(" in str(each.message)]


def test_sends_of_a_client_that_nobody_closes_are_counted() -> None:
    async def forgets() -> None:
        client = AsyncClient(NOBODY)
        client.send_soon("t", "one")
        client.send_soon("t", "two")

    assert told_of(lambda: asyncio.run(forgets())) == [
        "unclosed AsyncClient('http://127.0.0.1:9'): 2 messages were not sent; use it in "
        "`async with`, or await its close()"
    ]


def test_failures_that_nobody_saw_count_when_the_loop_has_ended() -> None:
    clients: list[AsyncClient] = []

    async def leaves() -> None:
        clients.append(AsyncClient(NOBODY))
        clients[0].send_soon("t", "one")

    assert told_of(lambda: asyncio.run(leaves())) == []
    (told,) = told_of(clients.clear)
    assert "1 messages were not sent" in told


def test_a_client_that_owes_nothing_goes_silently() -> None:
    async def closes() -> None:
        client = AsyncClient(NOBODY, retry_for=timedelta(0))
        client.send_soon("t", "x")
        with pytest.raises(SendFailed):
            await client.close(within=timedelta(0))

    def drops() -> None:
        asyncio.run(closes())
        with pytest.raises(ValueError, match="address"):
            AsyncClient("nowhere")
        AsyncClient(NOBODY)

    assert told_of(drops) == []

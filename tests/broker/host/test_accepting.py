"""Accepting connections one by one: none is left open when accepting ends."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable

import pytest
import uvloop

from delaylog.broker.host.tls.listener import Acceptor

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [
    asyncio.new_event_loop,
    uvloop.new_event_loop,
]


@pytest.mark.parametrize("make_loop", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("turns", range(6))
async def test_the_end_loses_no_connection(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    turns: int,
) -> None:
    """In whichever turn of the loop a connection comes: if it was accepted, it was passed on.

    A socket that was not passed on shows as a ResourceWarning, which is an error here.
    """
    passed: list[socket.socket] = []

    def fail(error: OSError) -> None:
        raise error

    acceptor = Acceptor(socket.create_server(("127.0.0.1", 0)), passed.append, fail)
    with socket.create_connection(("127.0.0.1", acceptor.port)):
        for _ in range(turns):
            await asyncio.sleep(0)
        acceptor.close()
        await asyncio.sleep(0.01)
        for sock in passed:
            sock.close()
        gc.collect()

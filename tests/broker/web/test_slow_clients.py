"""Clients that send nothing, or too slowly, lose their connection after a time that has a limit.

The broker's real limits are 75 s and 30 s; these tests start one with 3 s each.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

import pytest

LIMIT_S = 3
MARGIN_S = 20.0
"""How much later a busy machine may notice it."""
QUICK_TO_CLOSE = f"""
import sys
from delaylog.broker.web import app, http_context
app.IDLE_SECONDS = http_context.READ_SECONDS_MAX = {LIMIT_S}
from delaylog.broker.cli.main import main
sys.exit(main())
"""
SEND = b"POST /v1/topics/slow/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 31\r\n\r\n"
BODY = b'{"body":"x","delay_ms":3600000}'


@pytest.fixture(scope="module")
def broker(sound_broker: Callable[..., Any]) -> Any:
    return sound_broker(program=(sys.executable, "-P", "-c", QUICK_TO_CLOSE))


def answer_until_closed(sock: socket.socket, drip: Iterator[bytes]) -> bytes:
    """Send a piece every 0.2 s until the broker closes; returns its answer."""
    sock.settimeout(0.2)
    end, answer = time.monotonic() + LIMIT_S + MARGIN_S, b""
    while time.monotonic() < end:
        try:
            if piece := next(drip, b""):
                sock.sendall(piece)
            if not (got := sock.recv(65_536)):
                return answer
            answer += got
        except TimeoutError:
            continue
        except ConnectionError:
            return answer
    raise AssertionError("it is not closed")


def test_a_connection_that_asks_nothing_any_more_is_closed(broker: Any) -> None:
    with broker.connect() as sock:
        began = time.monotonic()
        sock.sendall(SEND + BODY)
        assert sock.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert answer_until_closed(sock, iter(())) == b""
    assert time.monotonic() - began >= LIMIT_S * 0.9


@pytest.mark.parametrize("before", [b"", SEND + BODY], ids=["first", "later"])
@pytest.mark.parametrize("begun", [SEND, SEND[:20]], ids=["body", "head"])
def test_a_request_that_arrives_byte_by_byte_is_ended(
    broker: Any, before: bytes, begun: bytes
) -> None:
    """Each byte is progress, and yet the connection does not last."""
    with broker.connect() as sock:
        if before:
            sock.sendall(before)
            assert sock.recv(65_536).startswith(b"HTTP/1.1 200 ")
        answer = answer_until_closed(sock, chain([begun], repeat(b"x")))
    assert begun is not SEND or answer.startswith(b"HTTP/1.1 408 ")


def test_a_client_that_asks_in_time_stays(broker: Any) -> None:
    """Requests a second apart outlast the limit; each sets the time anew, in both lanes."""
    health = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with broker.connect() as sock:
        for wire in (SEND + BODY, health) * 3:
            sock.sendall(wire)
            assert sock.recv(65_536).startswith(b"HTTP/1.1 200 ")
            time.sleep(1)

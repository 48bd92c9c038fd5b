"""Clients that send nothing, or too slowly, lose their connection after a time that has a limit.

The broker's real limits are 75 s and 30 s; these tests start one with 2 s each.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

import pytest

LIMIT_S = 2
MARGIN_S = 5.0
"""How much later a busy machine may notice it."""
QUICK_TO_CLOSE = {
    "delaylog.broker.web.app.IDLE_SECONDS": LIMIT_S,
    "delaylog.broker.web.http_context.READ_SECONDS_MAX": LIMIT_S,
}
SEND = b"POST /v1/topics/slow/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 31\r\n\r\n"
BODY = b'{"body":"x","delay_ms":3600000}'


@pytest.fixture(scope="module")
def broker(sound_broker: Callable[..., Any]) -> Any:
    return sound_broker(constants=QUICK_TO_CLOSE)


def closed_after_s(
    sock: socket.socket, drip: Iterator[bytes], began: float | None = None
) -> tuple[float, bytes]:
    """Send a piece every 0.2 s until the broker closes; returns the seconds since `began`, which is
    now if it is not given, and its answer.
    """
    sock.settimeout(0.2)
    began, answer = began or time.monotonic(), b""
    while time.monotonic() - began < LIMIT_S + MARGIN_S:
        try:
            if piece := next(drip, b""):
                sock.sendall(piece)
            if not (got := sock.recv(65_536)):
                break
            answer += got
        except TimeoutError:
            continue
        except ConnectionError:
            break
    return time.monotonic() - began, answer


def test_a_connection_that_asks_nothing_any_more_is_closed(broker: Any) -> None:
    with broker.connect() as sock:
        # From before the answer, from which the broker counts.
        began = time.monotonic()
        sock.sendall(SEND + BODY)
        assert sock.recv(65_536).startswith(b"HTTP/1.1 200 ")
        seconds, answer = closed_after_s(sock, iter(()), began)
    assert LIMIT_S * 0.9 <= seconds < LIMIT_S + MARGIN_S
    assert answer == b""


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
        seconds, answer = closed_after_s(sock, chain([begun], repeat(b"x")))
    assert seconds < LIMIT_S + MARGIN_S
    assert begun is not SEND or answer.startswith(b"HTTP/1.1 408 ")


def test_a_client_that_asks_in_time_stays(broker: Any) -> None:
    """Requests in short distances outlast the limit; each sets the time anew, in both lanes."""
    health = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with broker.connect() as sock:
        for wire in (SEND + BODY, health) * 4:
            sock.sendall(wire)
            assert sock.recv(65_536).startswith(b"HTTP/1.1 200 ")
            time.sleep(LIMIT_S / 4)

"""Answers that no broker gives: each call ends with one clear error, in time and in little memory.

A server plays a broker that was taken over, a proxy, or somebody on the way.
"""

from __future__ import annotations

import errno
import gzip
import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import aiohttp
import msgpack
import pytest
from aiohttp import web

from delaylog.client import AnswerLost, ApiError, AsyncClient, QuotaExceeded
from tests.client.scenes import serving

DEEP = b'{"a":' * 200_000
SENT = {"n": 1, "refs": 1, "deliver_at_ms": 1, "result": 0}


async def error_of(
    make: Any, answer: Callable[[], web.Response], call: Callable[[Any], Any]
) -> BaseException:
    """The error of a call with a time limit of a second that is answered so."""

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        return answer()

    async with serving(handle) as url:
        client = make(url, token="a-secret", retry_for=timedelta(seconds=0.1))
        began_s = time.monotonic()
        try:
            with pytest.raises(Exception) as caught:  # noqa: PT011
                await call(client)
        finally:
            await client.close()
    assert time.monotonic() - began_s < 10
    return caught.value


def send(client: Any) -> Any:
    return client.send("t", "x", timeout=timedelta(seconds=1))


@pytest.mark.parametrize("status", [200, 400, 503])
async def test_json_without_an_end_of_depth(make: Any, status: int) -> None:
    error = await error_of(
        make,
        lambda: web.Response(body=DEEP, status=status, content_type="application/json"),
        lambda client: client.get_topic("t", timeout=timedelta(seconds=1)),
    )
    assert isinstance(error, AnswerLost if status == 200 else ApiError)


@pytest.mark.parametrize("seconds", ["nan", "inf", "-5", "1e999", "soon"])
async def test_a_pause_that_nobody_can_make(make: Any, seconds: str) -> None:
    problem = json.dumps({"code": "quota", "detail": "used up"})
    headers = {"Retry-After": seconds}
    error = await error_of(
        make, lambda: web.Response(text=problem, status=429, headers=headers), send
    )
    assert isinstance(error, QuotaExceeded)
    assert error.retry_after_s is None


@pytest.mark.parametrize(
    "members", [{"result": 77}, {"n": 1 << 40}, {"refs": b"abc"}, {"refs": "~1"}]
)
async def test_columns_that_do_not_add_up(make: Any, members: dict[str, Any]) -> None:
    body = msgpack.packb(SENT | members)
    error = await error_of(make, lambda: web.Response(body=body), send)
    assert isinstance(error, AnswerLost)
    assert "cannot be read" in str(error)


@pytest.mark.parametrize("body", ['{"topics": 7}', '{"topics": [{"topic": 1}], "cursor": [1]}'])
async def test_members_of_other_types(make: Any, body: str) -> None:
    error = await error_of(
        make,
        lambda: web.Response(text=body),
        lambda client: client.topics(timeout=timedelta(seconds=1)),
    )
    assert isinstance(error, AnswerLost)


async def test_no_answer_is_unpacked(make: Any) -> None:
    """A compressed answer is not asked for, and a few bytes do not become many."""
    packed = gzip.compress(msgpack.packb(SENT))
    asked: list[str | None] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.headers.get("Accept-Encoding"))
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    async with serving(handle) as url:
        client = make(url)
        try:
            with pytest.raises(AnswerLost, match="cannot be read"):
                await send(client)
        finally:
            await client.close()
    assert set(asked) == {None}


async def test_a_body_that_is_too_long(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("wire.http_answer", "_async.transport"):
        monkeypatch.setattr(f"delaylog.client.{module}.ANSWER_BYTES_MAX", 100_000)
    error = await error_of(make, lambda: web.Response(body=b"x" * 200_000), send)
    assert isinstance(error, AnswerLost)
    assert "longer than" in str(error)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (None, "the connection broke off"),
        (errno.ECONNRESET, "the connection broke off: Connection reset by peer"),
    ],
)
async def test_a_connection_that_breaks_while_a_request_is_sent(
    number: int | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the text of aiohttp, which begins with `[Errno None]`."""

    def broken(*_: Any, **__: Any) -> Any:
        raise aiohttp.ClientOSError(number, "Can not write request body for http://b")

    monkeypatch.setattr(aiohttp.ClientSession, "request", broken)
    async with AsyncClient("http://127.0.0.1:9") as client:
        with pytest.raises(AnswerLost) as caught:
            await client.get_topic("t", timeout=timedelta(seconds=1))
    assert str(caught.value).endswith(f": {says}")

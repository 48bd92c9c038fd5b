"""Streams that a browser opens by its session: from which pages, and until when."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.broker.conftest import Secured
from tests.broker.web.streams import ACCEPT, Stream, path_of


@pytest.fixture
def login(secured: Secured, topic: str) -> tuple[dict[str, str], str]:
    """(the header of the cookie, the CSRF token) of a consumer who has logged in."""
    assert secured.call("PUT", f"/v1/topics/{topic}", {}).status == 201
    opened = secured.call("POST", "/v1/session", {}, secured.token(f"consumer:{topic}"))
    return {"Cookie": opened.headers["Set-Cookie"].partition(";")[0]}, opened.json["csrf"]


@asynccontextmanager
async def opened(secured: Secured, path: str, headers: dict[str, str]) -> AsyncIterator[Stream]:
    async with (
        aiohttp.ClientSession(secured.broker.url, headers=headers) as session,
        session.ws_connect(path) as socket,
    ):
        stream = Stream(socket)
        assert "open" in await stream.frame()
        yield stream


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"}, {}, {"Delaylog-CSRF": "wrong"}],
)
async def test_a_page_of_another_port_leases_nothing(
    secured: Secured, topic: str, login: Any, assert_problem: Any, headers: dict[str, str]
) -> None:
    """It makes the browser send the cookie, as an image's address can; without an origin."""
    cookie, _ = login
    secured.call("POST", f"/v1/topics/{topic}/messages", {"body": "x"})
    refused = secured.broker.call("GET", path_of(topic), None, cookie | ACCEPT | headers)
    assert "Delaylog-CSRF" in assert_problem(refused, 403, "forbidden")["detail"]
    stats = secured.call("GET", f"/v1/topics/{topic}/stats").json["counts"]
    assert (stats["ready"], stats["leased"]) == (1, 0)


async def test_pages_of_the_broker_open_streams(secured: Secured, topic: str, login: Any) -> None:
    """Also a ticket does, whose request has the cookie too."""
    cookie, csrf = login
    ticket = secured.broker.call(
        "POST", "/v1/session/ticket", {}, cookie | {"Delaylog-CSRF": csrf}
    ).json["ticket"]
    for headers in (
        {"Sec-Fetch-Site": "same-origin"},
        {"Origin": secured.broker.url},
        {"Delaylog-CSRF": csrf},
    ):
        async with opened(secured, path_of(topic), cookie | headers):
            pass
    async with opened(secured, path_of(topic, ticket=ticket), cookie):
        pass


@pytest.mark.parametrize("by_ticket", [False, True])
async def test_streams_and_tickets_end_with_the_session(
    secured: Secured, topic: str, login: Any, assert_problem: Any, by_ticket: bool
) -> None:
    cookie, csrf = login
    own = cookie | {"Delaylog-CSRF": csrf}
    call = secured.broker.call
    tickets = [call("POST", "/v1/session/ticket", {}, own).json["ticket"] for _ in range(2)]
    secured.call("POST", f"/v1/topics/{topic}/messages", {"body": "x"})
    path = path_of(topic, ticket=tickets[0]) if by_ticket else path_of(topic)
    async with opened(secured, path, {} if by_ticket else own) as stream:
        await stream.messages(1)
        assert call("DELETE", "/v1/session", None, own).status == 200
        assert await stream.closing() == (4401, "unauthorized: the session has ended: log in again")
    refused = call("GET", path_of(topic, ticket=tickets[1]), None, ACCEPT)
    assert_problem(refused, 401, "unauthorized")
    # As of a caller that has lost its rights, its leases return at once.
    stats = secured.call("GET", f"/v1/topics/{topic}/stats").json["counts"]
    assert (stats["ready"], stats["leased"]) == (1, 0)

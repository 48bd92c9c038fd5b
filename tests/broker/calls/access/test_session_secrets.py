"""The secrets of a cookie and of a ticket are found in headers and queries that strangers send."""

from __future__ import annotations

import timeit
from collections.abc import Callable

import pytest

from delaylog.broker.calls.access.sessions import session_secret, ticket_secret

SECRET = "A-z_0" + "x" * 38


@pytest.mark.parametrize(
    "cookie",
    [
        f"delaylog-session={SECRET}",
        f"other=1; delaylog-session={SECRET}; more=2",
        f"of another server=1; delaylog-session={SECRET}",
        f'half="; delaylog-session={SECRET}',
        f"{'a=b; ' * 1_500}delaylog-session={SECRET}",
    ],
)
def test_the_cookie_is_found_among_any_others(cookie: str) -> None:
    assert session_secret({"Cookie": cookie}) == SECRET


@pytest.mark.parametrize(
    "cookie",
    [
        "",
        "delaylog-session=",
        "delaylog-session",
        "delaylog-session=a;=;;",
        f"delaylog-session={SECRET}x",
        f"delaylog-session={SECRET[:-1]}",
        f"delaylog-session={SECRET[:-1]}\udcff",
        f"x-delaylog-session={SECRET}",
        f"other=delaylog-session={SECRET}",
    ],
)
def test_no_secret(cookie: str) -> None:
    assert session_secret({"Cookie": cookie}) is None


def test_the_ticket_of_a_query() -> None:
    assert ticket_secret(f"ticket={SECRET}") == SECRET
    assert ticket_secret(f"a=1&ticket={SECRET}&b=2") == SECRET
    # What is none is found too, so that its refusal speaks of a ticket.
    assert ticket_secret("ticket=") == ""
    assert ticket_secret(f"ticket={SECRET}%00x") == f"{SECRET}%00x"
    for query in (
        "",
        "ticket=\udcff",
        f"other_ticket={SECRET}",
        f"a=ticket={SECRET}",
    ):
        assert ticket_secret(query) is None


def test_what_a_stranger_sends_costs_little() -> None:
    """A head has at most 8 KB. Splitting it is the yardstick: a general parser takes 50 times as
    long.
    """
    cookie = "a=b; " * 1_500 + "delaylog-session=x"
    query = "ticket=&a=%41" * 500
    assert _cost(lambda: session_secret({"Cookie": cookie})) < 20 * _cost(lambda: cookie.split(";"))
    assert _cost(lambda: ticket_secret(query)) < 20 * _cost(lambda: query.split("&"))


def _cost(call: Callable[[], object]) -> float:
    return min(timeit.repeat(call, number=5, repeat=7))

"""URLs and answers of name servers that lead inside reach nothing: listeners count connections.

The listeners wait on loopback, on IPv4 and IPv6, on a permitted port. Names
resolve to what the table says, or to another address at each question (rebinding).
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from delaylog.broker.push.attempts import Attempts
from delaylog.broker.push.outcomes import Verdict
from delaylog.broker.push.requests import PushRequest
from delaylog.broker.rules.push_addresses import AddressRules, parse_networks
from tests.broker.push.receivers import Receiver, answer

pytestmark = pytest.mark.processes
REQUEST = PushRequest([], b"x")

_LITERALS = """
127.0.0.1 127.0.0.2 127.255.255.254 127.1 127.0.1 0 0.0.0.0 0x7f.1 0x7f000001 0x7f.0x0.0x0.0x1
0177.0.0.1 0177.1 00177.00.00.01 017700000001 2130706433 0x0 127.0.0.1. localhost LOCALHOST
①②⑦.0.0.1 127。0。0。1 127.0.0.1 ⓛocalhost [::1] [::] [0:0:0:0:0:0:0:1] [::127.0.0.1]
[::ffff:127.0.0.1] [::ffff:7f00:1] [::ffff:0:127.0.0.1] [64:ff9b::127.0.0.1]
[64:ff9b:1::127.0.0.1] [2002:7f00:1::] [2001:0:7f00:1::] [fe80::1] [fec0::1] [fd00::1] [ff02::1]
[2600::5efe:127.0.0.1] 169.254.169.254 [::ffff:a9fe:a9fe] [fd00:ec2::254] 10.0.0.1 172.16.0.1
192.168.0.1 100.100.100.200 192.0.0.192 224.0.0.1 255.255.255.255 168.63.129.16
"""
LITERALS = _LITERALS.split()
"""Hosts of URLs."""

NAMES: dict[str, list[str]] = {
    "localhost.": ["127.0.0.1", "::1"],
    "loop.test": ["127.0.0.1"],
    "loop6.test": ["::1"],
    "both.test": ["127.0.0.1", "::1"],
    "any.test": ["0.0.0.0"],
    "any6.test": ["::"],
    "mapped.test": ["::ffff:127.0.0.1"],
    "compatible.test": ["::127.0.0.1"],
    "nat64.test": ["64:ff9b::7f00:1"],
    "sixtofour.test": ["2002:7f00:1::1"],
    "metadata.test": ["169.254.169.254"],
    "private.test": ["10.0.0.1", "172.16.0.1", "192.168.1.1"],
    "carrier.test": ["100.64.0.1"],
    "local.test": ["fe80::1%lo"],
    "broadcast.test": ["255.255.255.255"],
    "multicast.test": ["224.0.0.251"],
    "many.test": [f"127.0.0.{n}" for n in range(1, 100)],
    "nothing.test": [],
}
"""What name servers answer."""


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the table resolve as it says; all others as on this machine. Returns questions."""
    questions: list[str] = []
    there = socket.getaddrinfo

    def look(host: str, port: int, *rest: Any) -> list[Any]:
        if host not in NAMES:
            return list(there(host, port, *rest))
        questions.append(host)
        found: list[Any] = []
        for text in NAMES[host]:
            family = socket.AF_INET6 if ":" in text else socket.AF_INET
            address = (text, port, 0, 0) if ":" in text else (text, port)
            found.append((family, socket.SOCK_STREAM, 6, "", address))
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found

    monkeypatch.setattr(socket, "getaddrinfo", look)
    return questions


@asynccontextmanager
async def inside(*headers: str) -> AsyncGenerator[tuple[Receiver, Receiver]]:
    """Listeners on one port of both loopbacks, which answer with these headers."""
    async with Receiver(answer(200, *headers)) as here:
        here6 = Receiver(answer(200, *headers), host="::1")
        here6.port = here.port
        async with here6:
            yield here, here6


async def reach(host: str, **rules: Any) -> tuple[int, str]:
    """(connections that arrived, why none did)."""
    async with inside() as (here, here6):
        permitted = AddressRules(ports=frozenset((here.port,)), **rules)
        attempts = Attempts(permitted, now_ms=lambda: time.time_ns() // 1_000_000)
        # Most of these URLs would not pass `check_url`; this line of defence needs no other.
        made = await attempts.post(f"http://{host}:{here.port}/", REQUEST, 20_000)
        await attempts.close()
        await asyncio.sleep(0)
        accepted = here.accepted + here6.accepted
        assert (made.verdict is Verdict.ACKED) == (accepted > 0)
        return accepted, made.reason


@pytest.mark.parametrize("host", [*LITERALS, *NAMES])
async def test_nothing_inside_is_reached(host: str) -> None:
    accepted, reason = await reach(host)
    assert accepted == 0
    # A name that has no address proves nothing of the rules: no other one may fail so.
    no_address = NAMES.get(host) == []
    judged = ("is not permitted", "is not a canonical IPv4 address")
    assert any(each in reason for each in (["not known"] if no_address else judged)), reason


def test_the_table_is_long_enough() -> None:
    assert len({*LITERALS, *NAMES}) >= 60


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "loop.test", "0x7f.1"])
async def test_the_listeners_are_reached_where_a_list_permits_them(host: str) -> None:
    accepted, _ = await reach(host, allowed=parse_networks(["127.0.0.0/8", "::1"]))
    assert accepted == 1


async def test_a_name_that_changes_its_address_is_judged_at_each_connection(
    monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    """The first address is a permitted one, then come others, then the first one again."""
    monkeypatch.setitem(NAMES, "rebinding.test", [])
    # A connection that is kept would be used again, and no name resolved.
    async with inside("connection: close") as (here, here6):
        rules = AddressRules(parse_networks(["127.0.0.0/8"]), frozenset((here.port,)))
        attempts = Attempts(rules, now_ms=lambda: 0)
        for address in ("127.0.0.1", "::1", "169.254.169.254", "127.0.0.1"):
            NAMES["rebinding.test"] = [address]
            made = await attempts.post(f"http://rebinding.test:{here.port}/", REQUEST, 20_000)
            if address == "127.0.0.1":
                assert made.verdict is Verdict.ACKED
            else:
                assert "is not permitted" in made.reason
            # The client keeps addresses for a while.
            attempts._session.connector.clear_dns_cache()  # type: ignore[union-attr]
        await attempts.close()
        assert asked == ["rebinding.test"] * 4
        assert (here.accepted, here6.accepted) == (2, 0)


async def test_a_name_with_a_permitted_and_a_refused_address_uses_the_permitted_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(NAMES, "mixed.test", ["::1", "127.0.0.1"])
    async with inside() as (here, here6):
        rules = AddressRules(parse_networks(["127.0.0.0/8"]), frozenset((here.port,)))
        attempts = Attempts(rules, now_ms=lambda: 0)
        made = await attempts.post(f"http://mixed.test:{here.port}/", REQUEST, 20_000)
        await attempts.close()
        assert made.verdict is Verdict.ACKED
        assert (here.accepted, here6.accepted) == (1, 0)


async def test_a_redirect_inside_is_not_followed() -> None:
    async with inside() as (here, here6):
        elsewhere = answer(302, f"location: http://127.0.0.1:{here.port}/")
        async with Receiver(elsewhere) as receiver:
            allowed = parse_networks(["127.0.0.0/8"])
            rules = AddressRules(allowed, frozenset((receiver.port, here.port)))
            attempts = Attempts(rules, now_ms=lambda: 0)
            made = await attempts.post(f"http://127.0.0.1:{receiver.port}/", REQUEST, 20_000)
            await attempts.close()
        assert made.verdict is Verdict.FAILED
        assert (here.accepted, here6.accepted) == (0, 0)

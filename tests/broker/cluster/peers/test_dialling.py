"""Dialling: names that move, names that cannot be resolved, and peers that refuse each connection.

Method: transports on real loopback sockets; a resolver of the test's own, since that of the system
cannot be made to change its mind.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from delaylog.broker.cluster.peers import PeerLimits, Refused
from delaylog.broker.cluster.peers.handshake import CHALLENGE_SIZE, HandshakeError
from delaylog.broker.host.system import name_lookup
from tests.broker.cluster.peers.rig import KEY, WAIT_S, Rig, ack
from tests.waiting import until

QUICK = PeerLimits(redial_min_ms=5, redial_max_ms=10, refusals_quick=3, refused_max_ms=60_000)


class Zone:
    """The names that the resolver knows; a look-up of one that is `dead` does not end."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.dead: set[str] = set()
        self.asked = 0
        self.released = threading.Event()
        self._real = socket.getaddrinfo

    def look(self, host: str, port: int, *more: Any) -> Any:
        if not host.endswith(".example"):
            return self._real(host, port, *more)
        self.asked += 1
        if host in self.dead:
            self.released.wait(60)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._real(self.names[host], port, *more)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Zone]:
    made = Zone()
    monkeypatch.setattr(name_lookup.socket, "getaddrinfo", made.look)
    monkeypatch.setattr(name_lookup, "KEEP_SECONDS", 0.05)
    yield made
    made.released.set()


async def test_a_name_that_moves_is_found_again(
    rig: Rig, zone: Zone, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot be resolved at first; then it has one address, and after a restart another."""
    port = rig.addresses[1][1]
    rig.addresses[1] = ("beta.example", port)
    one = await rig.start(0)
    text = "cannot reach node 1 at beta.example"
    await until(lambda: any(text in line for line in caplog.messages))
    (line, *_) = (line for line in caplog.messages if text in line)
    assert line.endswith("the name cannot be resolved: Name or service not known")
    for host in ("127.0.0.1", "127.0.0.2"):
        zone.names["beta.example"] = host
        two = await rig.start(1, listen=(host, port))
        await until(lambda: one.transport.connected() == {1})
        one.transport.send(1, ack(1))
        await until(lambda two=two: bool(two.messages))
        await two.transport.stop()
        await until(lambda: not one.transport.connected())


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example"])
async def test_a_name_that_no_server_can_have_is_dialled_again(
    rig: Rig, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig.addresses[1] = (host, rig.addresses[1][1])
    one = await rig.start(0)
    await until(lambda: one.transport.counts.peers[1].dials_failed > 1)
    assert any("the name cannot be resolved" in line for line in caplog.messages)


async def test_a_dead_name_server_has_one_look_up(rig: Rig, zone: Zone) -> None:
    """However often the name is dialled; and `stop` does not wait for the look-up."""
    rig.addresses[1] = ("beta.example", rig.addresses[1][1])
    zone.dead.add("beta.example")
    one = await rig.start(0, limits=PeerLimits(stranger_ms=20))
    await until(lambda: one.transport.counts.peers[1].dials_failed > 5)
    assert zone.asked == 1
    await one.transport.stop()


async def test_ipv6(rig: Rig) -> None:
    rig.addresses = {node: ("::1", port) for node, (_, port) in rig.addresses.items()}
    await rig.pair()


async def test_without_a_host_it_listens_on_all_addresses(rig: Rig) -> None:
    one = await rig.start(0)
    await rig.start(1, listen=("", rig.addresses[1][1]))
    await until(lambda: one.transport.connected() == {1})


# ---------------------------------------------------------------------- pauses


@pytest.mark.parametrize("knows", [True, False], ids=["after-hello", "in-handshake"])
async def test_a_peer_that_refuses_each_connection_is_dialled_ever_less(
    rig: Rig, knows: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As one of another release does, or one with another secret."""
    caplog.set_level(logging.INFO)
    came = await rig.listen(1)
    loop, times = asyncio.get_running_loop(), []
    one = await rig.start(0, limits=QUICK)
    for _ in range(9):
        fake = await came.get()
        times.append(loop.time())
        with suppress(HandshakeError, asyncio.IncompleteReadError):
            await fake.meet(1, 0, KEY if knows else bytes(reversed(KEY)))
        if knows:
            fake.hello(1)
            fake.write(b"".join(fake.sealer.seal([b"what is this?"])))
    # The dialler pauses at least that long behind its fourth, fifth … refusal.
    for number, least_ms in enumerate((20, 40, 80, 160, 320), start=QUICK.refusals_quick + 1):
        assert (times[number] - times[number - 1]) * 1000 >= least_ms
    refused = {*one.refused} - {Refused.CUT}
    assert refused == ({Refused.WIRE} if knows else {Refused.KEY})
    lines = [line for line in caplog.messages if "is connected" in line]
    assert len(lines) <= QUICK.refusals_quick + 1


async def test_a_peer_that_is_away_is_dialled_at_the_same_pace(rig: Rig) -> None:
    """Nothing listens there, as between the end of a process and its next start."""
    one = await rig.start(0, limits=QUICK)
    await until(lambda: one.transport.counts.peers[1].dials_failed > 50)
    await rig.start(1)
    await until(lambda: one.transport.connected() == {1})


async def test_a_dial_that_is_given_up_closes_its_connection(rig: Rig) -> None:
    """A machine that has vanished would keep it open for ever."""
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.readexactly(CHALLENGE_SIZE)
            begun.set()
            await reader.read()
        ended.set()
        writer.close()

    begun = asyncio.Event()
    async with await asyncio.start_server(silent, *rig.addresses[1]):
        one = await rig.start(0)
        await asyncio.wait_for(begun.wait(), WAIT_S)
        one.transport.set_addresses({0: rig.addresses[0]})
        await asyncio.wait_for(ended.wait(), 5)
        assert one.refused == {}

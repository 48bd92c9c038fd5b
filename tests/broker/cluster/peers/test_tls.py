"""TLS between nodes: certificates of one authority on both sides, under the same proof."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from delaylog.broker.cluster.peers import PeerLimits, PeerTls, Refused
from delaylog.replication.errors import ClusterError
from delaylog.replication.messages import Append
from delaylog.replication.watermark import EpochTick
from tests.broker.cluster.peers.rig import Rig, ack
from tests.certificates import Authority, write_pair
from tests.waiting import until

Certificates = Callable[[str, str], PeerTls]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Files of the node of this name, signed by the authority of that name."""
    folder = tmp_path_factory.mktemp("tls")
    authorities: dict[str, Authority] = {}

    def made(authority: str, name: str) -> PeerTls:
        ca = folder / f"{authority}-ca.pem"
        if authority not in authorities:
            authorities[authority] = Authority(authority)
            ca.write_bytes(authorities[authority].pem)
        pair = authorities[authority].issue(name)
        return PeerTls(str(ca), *map(str, write_pair(folder, f"{authority}-{name}", pair)))

    return made


async def test_talk(rig: Rig, certificates: Certificates) -> None:
    """Small and large messages both ways, and a stop that leaves nothing."""
    tls = [certificates("one", "a"), certificates("one", "b")]

    nodes = [await rig.start(n, tls=tls[n]) for n in (0, 1)]
    await until(lambda: all(node.transport.connected() for node in nodes))
    large = Append(1, 2, 3, 4, 5, EpochTick(), random.Random(1).randbytes(5 << 20))
    for n, node in enumerate(nodes):
        for message in (ack(1), large, ack(2)):
            node.transport.send(1 - n, message)
    await until(lambda: all(len(node.messages) == 3 for node in nodes))
    for n, node in enumerate(nodes):
        assert node.messages == [(1 - n, ack(1)), (1 - n, large), (1 - n, ack(2))]
        assert not node.refused


async def test_the_secret_is_asked_for_all_the_same(rig: Rig, certificates: Certificates) -> None:
    """A good certificate alone is nobody."""
    tls = certificates("one", "c")

    one = await rig.start(0, tls=tls)
    two = await rig.start(1, tls=tls, key=bytes(32))
    await until(lambda: one.refused.get(Refused.KEY, 0) > 1)
    assert not one.story
    assert not two.story


async def test_the_end_of_a_peer_is_seen(rig: Rig, certificates: Certificates) -> None:
    """A process that ends sends no farewell of TLS."""
    tls = certificates("one", "end")
    one, two = [await rig.start(n, tls=tls) for n in (0, 1)]
    await until(lambda: one.story and two.story)
    for connection in [*two.transport._alive]:
        connection.abort()
    await until(lambda: one.ended == [1])


async def test_another_authority(rig: Rig, certificates: Certificates) -> None:
    """Neither side takes a certificate of it."""
    tls = [certificates("one", "d"), certificates("two", "d")]

    nodes = [await rig.start(n, tls=tls[n]) for n in (0, 1)]
    await until(lambda: all(node.refused.get(Refused.TLS, 0) > 1 for node in nodes))
    assert not nodes[0].story
    assert not nodes[1].story


async def test_client_of_another_authority(rig: Rig, certificates: Certificates) -> None:
    """A dialler that trusts the listener, but has no certificate the listener trusts."""
    good, bad = certificates("one", "e"), certificates("two", "e")
    mixed = PeerTls(good.ca, bad.cert, bad.key)

    one = await rig.start(0, tls=mixed)
    two = await rig.start(1, tls=good)
    await until(lambda: two.refused.get(Refused.TLS, 0) > 1)
    await until(lambda: one.transport.counts.peers[1].dials_failed > 1)
    assert not one.story
    assert not two.story


@pytest.mark.parametrize("plain", [0, 1])
async def test_one_side_without(
    rig: Rig,
    certificates: Certificates,
    plain: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A node with TLS and one without never meet, neither falls over, and each says why."""
    tls = certificates("one", "f")

    limits = PeerLimits(stranger_ms=200)
    nodes = [await rig.start(n, tls=None if n == plain else tls, limits=limits) for n in (0, 1)]
    await until(lambda: nodes[1].refused)
    await until(lambda: nodes[0].transport.counts.peers[1].dials_failed > 2)
    assert not nodes[0].story
    assert not nodes[1].story
    for node in nodes:
        assert set(node.refused) == {Refused.TLS}
    assert "speaks TLS; this node has no [tls]" in caplog.text
    assert "does not speak TLS; this node has [tls]" in caplog.text


async def test_flood_in_front_of_tls(rig: Rig, certificates: Certificates) -> None:
    """Connections that do not even begin TLS are bounded like all strangers, and in time."""
    tls = certificates("one", "g")

    limits = PeerLimits(strangers_max=8, stranger_ms=300)
    node = await rig.start(1, tls=tls, limits=limits)
    fakes = [await rig.dial(1) for _ in range(40)]
    fakes[-1].write(b"no TLS at all" * 100)
    for fake in fakes:
        await fake.closed()
    await until(lambda: node.transport.counts.strangers == 0)
    assert node.transport.counts.strangers_most == 8
    assert sum(node.refused.values()) == 40
    assert node.refused[Refused.CROWD] >= 32
    other = await rig.start(0, tls=tls)
    await until(lambda: other.transport.connected() and node.transport.connected())


def test_bad_files(tmp_path: Path, certificates: Certificates) -> None:
    """Said when the transport is made."""
    good = certificates("one", "h")
    empty = tmp_path / "empty"
    empty.write_text("")
    for bad, says in (
        (PeerTls(str(empty), good.cert, good.key), "tls.ca"),
        (PeerTls(good.ca, good.cert, str(empty)), "tls.cert"),
        (PeerTls(good.ca, str(tmp_path / "none"), good.key), "tls.cert"),
    ):
        with pytest.raises(ClusterError, match=says):
            bad.contexts()

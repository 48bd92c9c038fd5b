"""TLS between nodes: certificates of one authority on both sides, under the same proof."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.cluster.peers import PeerLimits, PeerTls, Refused
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.tls import certificates as checks
from delaylog.replication.epochs import EpochTick
from delaylog.replication.messages import Append
from tests.broker.cluster.peers.rig import Rig, ack
from tests.certificates import CLIENT, SERVER, Authority, write_pair, write_private
from tests.waiting import until

Certificates = Callable[..., PeerTls]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Files of the node of this name, signed by the authority of that name."""
    folder = tmp_path_factory.mktemp("tls")
    authorities: dict[str, Authority] = {}

    def made(
        authority: str, name: str, *, trusts: str = "", now_s: float | None = None, **how: Any
    ) -> PeerTls:
        """`trusts` = the authority in its file, if it is another one; `now_s` = its time."""
        for each in (authority, trusts or authority):
            if each not in authorities:
                authorities[each] = Authority(each)
        place = folder / name
        place.mkdir(exist_ok=True)
        ca = place / "ca.pem"
        ca.write_bytes(authorities[trusts or authority].pem)
        files = write_pair(place, authority, authorities[authority].issue(name, **how))
        now = time.time if now_s is None else lambda: now_s
        return PeerTls(str(ca), *map(str, files), now)  # type: ignore[call-arg,arg-type]

    return made


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a node use a certificate that no other node takes."""
    monkeypatch.setattr(checks, "mutual_refusal", lambda *_: "")


def read(path: str) -> bytes:
    return Path(path).read_bytes()


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
    two = await rig.start(1, tls=tls, keys=lambda: (bytes(32),))
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


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("bad", [0, 1], ids=["dialler", "listener"])
@pytest.mark.parametrize("fault", ["another authority", "expired"])
async def test_both_sides_say_why_and_who(
    rig: Rig,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    bad: int,
    fault: str,
) -> None:
    """One node has a bad certificate: the other refuses it, and both name each other."""
    good = certificates("one", "i")
    tls = [good, good]
    if fault == "expired":
        tls[bad] = certificates("one", "old", days=(-0.9, -0.1), now_s=time.time() - 0.5 * 86_400)
        verdict, alert = "certificate has expired", "certificate expired"
    else:
        tls[bad] = certificates("two", "i2", trusts="one")
        verdict, alert = "unable to get local issuer certificate", "unknown ca"
    nodes = [await rig.start(n, tls=tls[n], describe="node {} (name)".format) for n in (0, 1)]
    await until(lambda: all(node.refused.get(Refused.TLS, 0) > 1 for node in nodes))
    said = [each.getMessage() for each in caplog.records]
    port = f":{rig.addresses[1][1]}"
    refuses = f"node {bad} (name) at 127.0.0.1{port if bad else ''}: its certificate is refused: "
    refused = f"node {1 - bad} (name) at 127.0.0.1{'' if bad else port}: it refuses the "
    assert any(refuses + verdict in line for line in said), said
    assert any(f"{refused}certificate of this node: {alert}" in line for line in said), said
    assert not any(node.story for node in nodes)


async def test_new_certificates_and_a_new_authority_while_connected(
    rig: Rig, certificates: Certificates
) -> None:
    """New connections use the new files; open ones go on. With two CAs in the file, nodes of the
    old and of the new one accept each other.
    """
    tls = [certificates("one", f"j{n}") for n in (0, 1)]
    nodes = [await rig.start(n, tls=tls[n]) for n in (0, 1)]
    await until(lambda: all(node.transport.connected() for node in nodes))
    new = certificates("two", "k")
    both = read(tls[0].ca) + read(new.ca)

    async def put(n: int, **files: bytes) -> None:
        for kind, content in files.items():
            write_private(Path(getattr(tls[n], kind)), content)
        await tls[n].read()()

    async def connect_again() -> None:
        before = nodes[0].transport.counts.peers[1].connects
        nodes[0].transport.drop(1, "a test")
        await until(lambda: nodes[0].transport.counts.peers[1].connects > before)

    for n in (0, 1):
        await put(n, ca=both)
    for n in (0, 1):
        connects = nodes[0].transport.counts.peers[1].connects
        await put(n, cert=read(new.cert), key=read(new.key))
        assert nodes[0].transport.counts.peers[1].connects == connects, "open ones go on"
        await connect_again()
    for n in (0, 1):
        await put(n, ca=read(new.ca))
    await connect_again()
    assert not any(Refused.TLS in node.refused for node in nodes)


def test_bad_files(tmp_path: Path, certificates: Certificates) -> None:
    """Each is refused with what is wrong, at the start and at a reload, where the others stay."""
    good, other = certificates("one", "h"), certificates("two", "h2")
    empty = str(write_private(tmp_path / "empty", b""))
    half = str(write_private(tmp_path / "half", Path(good.cert).read_bytes()[:-40]))
    der = str(tmp_path / "der")
    Path(der).write_bytes(ssl.PEM_cert_to_DER_cert(Path(good.cert).read_text()))
    expired_ca = tmp_path / "expired.pem"
    past = Authority("past", days=(-3, -1))
    expired_ca.write_bytes(past.pem)
    live = [tmp_path / name for name in ("ca.pem", "node.pem", "node.key")]

    def put(paths: list[str]) -> None:
        for path, at in zip(paths, live, strict=True):
            content = Path(path).read_bytes() if Path(path).exists() else None
            at.unlink(missing_ok=True)
            if content is not None:
                write_private(at, content)

    def issued(name: str, **how: Any) -> list[str]:
        pair = write_pair(tmp_path, name, authority.issue(name, **how))
        return [str(tmp_path / "made-ca.pem"), *map(str, pair)]

    authority = Authority("mine")
    (tmp_path / "made-ca.pem").write_bytes(authority.pem)
    ca, cert, key = good.files
    put([ca, cert, key])
    running = PeerTls(*map(str, live))
    context = running.server
    for files, says in (
        ([empty, cert, key], r"tls.ca .* must contain certificates in PEM .*\(it is empty\)"),
        ([der, cert, key], r"tls.ca .*\(it is in DER: convert"),
        ([half, cert, key], "tls.ca .* must contain certificates"),
        ([str(expired_ca), cert, key], "tls.ca: CN=past has expired: it ended on"),
        ([ca, cert, empty], r"tls.cert .*a private key \(it is empty\)"),
        ([ca, half, key], r"tls.cert .*must contain a certificate \(it ends too early\)"),
        ([ca, der, key], r"tls.cert .*must contain a certificate \(it is in DER"),
        ([ca, str(tmp_path / "none"), key], "cannot read tls.cert .*: No such file"),
        ([ca, cert, other.key], "the key of tls.key .* belongs to another certificate"),
        ([other.ca, cert, key], "other nodes with the same tls.ca .* refuse it: unable to get"),
        (issued("old", days=(-3, -1)), "tls.cert: CN=old has expired: it ended on"),
        (issued("early", days=(1, 3)), "tls.cert: CN=early is not valid before"),
        (issued("server", uses=[SERVER]), "refuse it: unsuitable certificate purpose"),
        (issued("client", uses=[CLIENT]), "refuse it: unsuitable certificate purpose"),
    ):
        put(files)
        with pytest.raises(ConfigError, match=says):
            PeerTls(*map(str, live))
        with pytest.raises(ConfigError, match=says):
            running.read()
        assert running.server is context

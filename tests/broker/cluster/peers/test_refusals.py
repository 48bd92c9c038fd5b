"""What a node refuses: each kind of bad peer closes its own connection, is counted, and no more.

Method: hand-made peers on raw connections against a real node, which must still serve a sound
connection afterwards.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from delaylog.broker.cluster.peers import Levels, PeerLimits, Refused
from delaylog.broker.cluster.peers.handshake import (
    CHALLENGE_SIZE,
    PROOF_SIZE,
    Handshake,
    HandshakeError,
    Identity,
    Side,
)
from delaylog.replication.epochs import EpochTick
from delaylog.replication.messages import Append, FolderIdentity, Hello
from delaylog.replication.wire import encode
from delaylog.storage.messages.batch import Block
from tests.broker.cluster.peers.rig import CLUSTER, KEY, AnyFolder, Fake, Node, Rig, ack
from tests.waiting import until

QUICK = PeerLimits(stranger_ms=1_000, silent_ms=5_000)
"""Time enough for a sound peer of a busy machine."""


async def still_serves(rig: Rig, node: Node) -> None:
    """A sound peer gets through afterwards."""
    fake = await rig.proven()
    assert isinstance((await fake.receive())[0], Hello)
    fake.send(ack(77))
    await until(lambda: (0, ack(77)) in node.messages)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nAccept: text/html, application/json\r\n\r\n", "garbage"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(80), "tls"),
        (bytes(CHALLENGE_SIZE), "garbage"),
        (random.Random(1).randbytes(100_000), "garbage"),
        (b"DLPR\x02" + bytes(CHALLENGE_SIZE), "version"),
        (b"DLPR\x01\x01\x00\x00\x01\x00" + bytes(CHALLENGE_SIZE), "other_cluster"),
        (b"DLPR", "late"),
        (b"", "late"),
    ],
)
async def test_strangers(rig: Rig, data: bytes, reason: str) -> None:
    """Whatever they say; they are told nothing."""
    late = reason == Refused.LATE
    node = await rig.start(1, limits=QUICK if late else None)
    fake = await rig.dial(1)
    fake.write(data)
    await fake.closed()
    assert node.refused == {Refused(reason): 1}
    assert not node.story
    await still_serves(rig, node)


async def test_wrong_key_listens(rig: Rig) -> None:
    """A node with another secret gets no HELLO of ours, goes on trying, and learns the reason."""
    one = await rig.start(0)
    two = await rig.start(1, keys=lambda: (bytes(32),))
    await until(lambda: one.refused.get(Refused.KEY, 0) > 2)
    assert not one.story
    assert not two.story
    assert set(two.refused) == {Refused.KEY}


async def test_wrong_key_dials(rig: Rig) -> None:
    """One that answers with a proof of its own making."""

    node = await rig.start(1)
    fake = await rig.dial(1)
    identity = Identity(0, CLUSTER, lambda: (bytes(32),), frozenset({0, 1}))
    shake = Handshake(identity, Side.DIALS, bytes(32))
    fake.write(shake.challenge(1))
    with pytest.raises(HandshakeError):
        shake.answer(await fake.reader.readexactly(CHALLENGE_SIZE + PROOF_SIZE))
    fake.write(random.Random(3).randbytes(PROOF_SIZE))
    await fake.closed()
    assert node.refused == {Refused.KEY: 1}
    assert not node.story
    await still_serves(rig, node)


async def test_a_whole_conversation_again(rig: Rig) -> None:
    """All bytes of a sound dialler, sent a second time, get as far as a wrong proof."""
    node = await rig.start(1)
    first = await rig.proven()
    first.send(ack(1))
    await until(lambda: node.messages)
    second = await rig.dial(1)
    second.write(first.sent)
    await second.closed()
    assert node.refused == {Refused.KEY: 1}
    assert node.messages == [(0, ack(1))]
    assert node.story == [("up", 0)], "the sound connection stays"


async def test_wrong_node_answers(rig: Rig) -> None:
    """A node of this cluster that listens where another one should."""

    rig.make_addresses(3)
    rig.addresses[1] = rig.addresses[2]
    one = await rig.start(0)
    await rig.start(2, addresses={0: rig.addresses[0], 2: rig.addresses[2]})
    await until(lambda: one.transport.connected() == {2})
    await until(lambda: one.transport.counts.peers[1].dials_failed > 2)
    assert one.story == [("up", 2)]


@pytest.mark.parametrize(
    "first",
    [
        Hello(b"x" * 16, 0, True, 0, 0),
        Hello(CLUSTER, 2, True, 0, 0),
        ack(1),
        None,
        Append(1, 2, 3, 4, 5, EpochTick(), bytes(1000)),
    ],
    ids=["cluster", "node", "ack", "ping", "append"],
)
async def test_hello(rig: Rig, first: Hello | None) -> None:
    """Who has proven itself, but begins with something else than its own HELLO."""

    node = await rig.start(1)
    fake = await rig.proven(hello=False)
    fake.send(*([] if first is None else [first]))
    await fake.closed()
    long = isinstance(first, Append)
    assert node.refused == {Refused.RECORD if long else Refused.HELLO: 1}
    assert not node.story
    await still_serves(rig, node)


async def test_hello_does_not_come(rig: Rig) -> None:
    """Proven, and then silent: it is nobody yet."""
    node = await rig.start(1, limits=QUICK)
    fake = await rig.proven(hello=False)
    await fake.closed()
    assert node.refused == {Refused.LATE: 1}
    assert not node.story


def bad_records(fake: Fake) -> dict[str, tuple[Callable[[], bytes], Refused, int]]:
    """What a proven peer may send that is bad: why it is, and how many messages are taken."""

    def sealed(*blocks: Block) -> bytes:
        return b"".join(fake.sealer.seal([*blocks]))

    def skipped() -> bytes:
        fake.record(ack(1))
        return fake.record(ack(1))

    def altered() -> bytes:
        good = fake.record(ack(1))
        return good[:10] + bytes([good[10] ^ 1]) + good[11:]

    whole = b"".join(encode(ack(1)))
    hello = Hello(CLUSTER, 0, True, 0, 0)
    return {
        "repeated": (lambda: 2 * fake.record(ack(1)), Refused.RECORD, 1),
        "left out": (skipped, Refused.RECORD, 0),
        "injected": (lambda: fake.record(ack(1)) + bytes(40), Refused.RECORD, 1),
        "altered": (altered, Refused.RECORD, 0),
        "too long": (lambda: b"\xff\xff\xff\x7f", Refused.RECORD, 0),
        "second hello": (lambda: fake.record(hello), Refused.WIRE, 0),
        "no message": (lambda: sealed(b"what is this?"), Refused.WIRE, 0),
        "half a message": (lambda: sealed(whole[:-1]), Refused.WIRE, 0),
        "one and a half": (lambda: sealed(whole, whole[:9]), Refused.WIRE, 0),
    }


async def test_bad_records(rig: Rig) -> None:
    """Nothing of a bad record is taken; what stood before it was."""

    node = await rig.start(1)
    kinds = 9
    for number in range(kinds):
        node.messages.clear()
        node.story.clear()
        node.transport.counts.refused.clear()
        fake = await rig.proven()
        await until(lambda: node.story)
        table = bad_records(fake)
        assert len(table) == kinds
        kind, (make, reason, taken) = [*table.items()][number]
        fake.write(make())
        await fake.closed()
        await until(lambda: len(node.story) == 2)
        assert node.refused == {reason: 1}, kind
        assert node.messages == [(0, ack(1))] * taken, kind
    await still_serves(rig, node)


async def test_cut_at_each_byte(rig: Rig) -> None:
    """A short conversation that ends after each of its bytes: whole messages or none."""

    node = await rig.start(1)
    whole = CHALLENGE_SIZE + PROOF_SIZE + 63 + 116 + 53 + 20
    for size in range(whole + 1):
        node.messages.clear()
        node.transport.counts.refused.clear()
        fake = await rig.dial(1)
        identity = Identity(0, CLUSTER, lambda: (KEY,), frozenset({0, 1}), Levels)
        shake = Handshake(identity, Side.DIALS, bytes(32))
        challenge = shake.challenge(1)
        fake.writer.write(challenge[:size])
        left = size - len(challenge)
        if left >= 0:
            rest = shake.answer(await fake.reader.readexactly(CHALLENGE_SIZE + PROOF_SIZE))
            fake.begin(shake)
            rest += fake.record(Hello(CLUSTER, 0, True, 0, 0))
            rest += fake.record(AnyFolder().identity(0))
            rest += fake.record(ack(5)) + fake.record()
            fake.writer.write(rest[:left])
        fake.writer.write_eof()
        await fake.closed()
        await until(lambda: not node.transport.connected())
        await until(lambda: node.transport.counts.strangers == 0)
        ends = {whole - 73, whole - 20, whole}
        assert node.refused == ({} if size in ends else {Refused.CUT: 1}), size
        assert len(node.messages) == (size >= whole - 20), size


async def test_garbage_of_all_kinds(rig: Rig) -> None:
    """Random bytes at every stage never do more than close their own connection."""
    chance = random.Random(5)
    node = await rig.start(1, limits=PeerLimits(stranger_ms=100))
    for number in range(60):
        fake = await rig.dial(1)
        # A handshake that takes longer than the limit is ended, too.
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            if number % 3:
                await fake.prove(0, 1)
            if number % 3 == 2:
                fake.hello(0)
        fake.write(chance.randbytes(chance.choice([1, 4, 30, 96, 1000, 300_000])))
        if chance.random() < 0.7:
            fake.writer.write_eof()
        await fake.closed()
    await until(lambda: sum(node.refused.values()) == 60)
    assert not node.messages
    await still_serves(rig, node)


async def test_flood_of_strangers(rig: Rig) -> None:
    """So many at once as allowed; the oldest goes first, so a sound peer gets through."""

    node = await rig.start(1, limits=PeerLimits(strangers_max=8))
    for _ in range(100):
        await rig.dial(1)
    await still_serves(rig, node)
    await until(lambda: node.refused.get(Refused.CROWD, 0) >= 92)
    assert node.transport.counts.strangers_most == 8
    await until(lambda: node.refused.get(Refused.LATE, 0) == 100 - node.refused["crowd"])
    await until(lambda: node.transport.counts.strangers == 0)


async def test_a_newer_connection(rig: Rig) -> None:
    """Of the same peer: it takes the place of the older one, and both are told in order."""
    node = await rig.start(1)
    fakes = []
    for _ in range(3):
        fake = await rig.dial(1)
        fakes.append(fake)
        await fake.prove(0, 1)
        fake.hello(0)
        for kind in (Hello, FolderIdentity):
            assert isinstance((await fake.receive())[0], kind)
        count = len(fakes)
        await until(lambda c=count: len(node.story) == 2 * c - 1)
    assert node.story == [("up", 0), ("down", 0)] * 2 + [("up", 0)]
    for fake in fakes[:2]:
        await fake.closed()
    assert node.refused == {Refused.REPLACED: 2}
    node.transport.send(0, ack(9))
    assert await fakes[2].receive() == [ack(9)]
    fakes[2].send(ack(8))
    await until(lambda: node.messages == [(0, ack(8))])


async def test_silent_peer(rig: Rig) -> None:
    """It neither sends nor reads any more, like a stopped process: dead within half a second."""

    node = await rig.start(1)
    fake = await rig.proven(hello=False)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    fake.hello(0)
    await until(lambda: node.story)
    fake.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await until(lambda: len(node.story) == 2)
    assert node.refused == {Refused.SILENT: 1}
    assert loop.time() - begun > 0.45


async def test_slow_reader(rig: Rig) -> None:
    """It sends, but reads nothing: what waits for it is bounded."""
    limit = 4 << 20
    node = await rig.start(1, limits=PeerLimits(outgoing_bytes_max=limit))
    fake = await rig.proven()
    await until(lambda: node.story)
    fake.writer.transport.pause_reading()  # type: ignore[attr-defined]
    message = Append(1, 2, 3, 4, 5, EpochTick(), bytes(1 << 20))
    sent = 0
    while node.transport.connected():
        fake.send()
        node.transport.send(0, message)
        sent += 1
        assert sent < 100
        await asyncio.sleep(0.005)
    await until(lambda: len(node.story) == 2)
    assert node.refused == {Refused.SLOW: 1}
    assert sent > 4
    await still_serves(rig, node)


async def test_one_long_message_is_no_slow_peer(rig: Rig) -> None:
    """A single message may be longer than what may wait."""
    one, two = await rig.pair(limits=PeerLimits(outgoing_bytes_max=1 << 20))
    message = Append(1, 2, 3, 4, 5, EpochTick(), bytes(8 << 20))
    one.transport.send(1, message)
    await until(lambda: two.messages == [(0, message)])
    assert not one.refused

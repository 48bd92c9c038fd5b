"""Transports on real loopback sockets, and a hand-made peer that can misbehave in every way.

All in one loop and one process. Everything started is stopped at the end, and then nothing may be
left: no task, no connection, no listening socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from dataclasses import fields
from types import TracebackType
from typing import Any

from delaylog.broker.cluster.peers import Levels, PeerTransport, Refused
from delaylog.broker.cluster.peers.handshake import (
    CHALLENGE_SIZE,
    PROOF_SIZE,
    Handshake,
    Identity,
    Side,
)
from delaylog.broker.cluster.peers.records import RECORD_BYTES_MAX, RecordReader, RecordWriter
from delaylog.broker.cluster.peers.transport import PeerConfig, PeerHost
from delaylog.broker.host.machine import REAL
from delaylog.client.child_broker import free_ports
from delaylog.replication.messages import Ack, FolderIdentity, Hello, Message
from delaylog.replication.wire import Decoder, encode
from tests.waiting import until

CLUSTER = b"0123456789abcdef"
KEY = bytes(range(32))
WAIT_S = 20.0
"""For what must come; nothing is measured by it."""


def ack(number: int) -> Ack:
    return Ack(1, number, number, True)


class Node:
    """A transport and what it told."""

    def __init__(self, transport: PeerTransport) -> None:
        self.transport = transport
        self.messages: list[tuple[int, Message]] = []
        self.story: list[tuple[str, int]] = []
        self.ended: list[int] = []
        """Peers that have closed their connection themselves."""
        self.on_message: Callable[[int, Message], None] = lambda peer, message: None

    @property
    def refused(self) -> dict[Refused, int]:
        return dict(self.transport.counts.refused)

    def down(self, peer: int, *, ended: bool) -> None:
        self.story.append(("down", peer))
        if ended:
            self.ended.append(peer)

    def take(self, peer: int, message: Message) -> None:
        self.messages.append((peer, message))
        self.on_message(peer, message)


class Fake:
    """A peer made by hand on a raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.sealer = RecordWriter(KEY)
        self.opener = RecordReader(KEY, RECORD_BYTES_MAX)
        self.decoder = Decoder()
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data
        self.writer.write(data)

    async def prove(self, node: int, target: int, key: bytes = KEY) -> None:
        """Dial properly, up to where records begin."""
        identity = Identity(node, CLUSTER, lambda: (key,), frozenset({node, target}), Levels)
        shake = Handshake(identity, Side.DIALS, secrets.token_bytes(32))
        self.write(shake.challenge(target))
        self.write(shake.answer(await self.reader.readexactly(CHALLENGE_SIZE + PROOF_SIZE)))
        self.begin(shake)

    async def meet(self, node: int, peer: int, key: bytes = KEY) -> None:
        """Be dialled properly, up to where records begin."""
        identity = Identity(node, CLUSTER, lambda: (key,), frozenset({node, peer}), Levels)
        shake = Handshake(identity, Side.LISTENS, secrets.token_bytes(32))
        self.write(shake.meet(await self.reader.readexactly(CHALLENGE_SIZE)))
        shake.check(await self.reader.readexactly(PROOF_SIZE))
        self.begin(shake)

    def begin(self, shake: Handshake) -> None:
        """The handshake is done: records from here on."""
        session = shake.session()
        self.sealer = RecordWriter(session.send_key)
        self.opener = RecordReader(session.receive_key, RECORD_BYTES_MAX)

    def record(self, *messages: Message) -> bytes:
        """A sealed record, not sent yet."""
        return b"".join(self.sealer.seal([b for message in messages for b in encode(message)]))

    def send(self, *messages: Message) -> None:
        self.write(self.record(*messages))

    def hello(self, node: int, cluster_id: bytes = CLUSTER) -> None:
        """Say who it is, and which folder it serves."""
        self.send(Hello(cluster_id, node, True, 0, 0))
        self.send(AnyFolder().identity(node))

    async def receive(self) -> list[Message]:
        """Messages of the next record that has some."""
        while True:
            while (carried := self.opener.record()) is not None:
                with carried:
                    found = self.decoder.feed(carried)
                if found:
                    return found
            with self.opener.space() as space:
                data = await asyncio.wait_for(self.reader.read(len(space)), WAIT_S)
                if not data:
                    raise EOFError
                space[: len(data)] = data
            self.opener.filled(len(data))

    async def closed(self) -> None:
        """Return once the other side has closed."""
        try:
            while await asyncio.wait_for(self.reader.read(1 << 16), WAIT_S):
                pass
        except ConnectionError:
            pass

    async def close(self) -> None:
        self.writer.transport.abort()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class AnyFolder:
    """Says that nothing is known of any folder, and takes all."""

    def __init__(self, version: int = 0) -> None:
        self._version = version
        self.judged: list[int] = []

    def identity(self, peer: int) -> FolderIdentity:
        return FolderIdentity(bytes(16), 1, self._version, bytes(16), 0, 0, 0, 0, (1,))

    def judge(
        self, peer: int, hello: Hello, theirs: FolderIdentity, connected: FolderIdentity | None
    ) -> None:
        self.judged.append(peer)


PLACE = [field.name for field in fields(PeerConfig)]
HOST = [field.name for field in fields(PeerHost)]


class Rig:
    """Nodes of one cluster, and hand-made peers."""

    def __init__(self) -> None:
        self.addresses: dict[int, tuple[str, int]] = {}
        self.make_addresses(2)
        self.started: list[PeerTransport] = []
        self.fakes: list[Fake] = []
        self.servers: list[asyncio.Server] = []

    def make_addresses(self, size: int) -> None:
        """Let the cluster have this many nodes; before any is started."""
        self.addresses = {node: ("127.0.0.1", port) for node, port in enumerate(free_ports(size))}

    async def __aenter__(self) -> Rig:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self.servers:
            server.close()
        for transport in self.started:
            await transport.stop()
            assert transport.counts.strangers == 0
            assert not transport.connected()
        for fake in self.fakes:
            await fake.close()
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]
        assert not left, left

    async def start(self, node: int, **changes: Any) -> Node:
        """A node of the cluster, listening and dialling."""

        def take(peer: int, message: Message) -> None:
            made.take(peer, message)

        options: dict[str, Any] = {
            "node": node,
            "cluster_id": CLUSTER,
            "keys": lambda: (KEY,),
            "addresses": self.addresses,
            "listen": self.addresses[node],
            "hello": lambda: Hello(CLUSTER, node, True, 7, 9),
            "folders": AnyFolder(),
            "on_message": take,
            "on_connect": lambda peer: made.story.append(("up", peer)),
            "on_disconnect": lambda peer, ended: made.down(peer, ended=ended),
        }
        options |= changes
        place = {name: options.pop(name) for name in PLACE if name in options}
        host = {name: options.pop(name) for name in HOST if name in options}
        made = Node(PeerTransport(PeerConfig(**place), PeerHost(**host), REAL, **options))
        assert await made.transport.start() == self.addresses[node][1]
        self.started.append(made.transport)
        return made

    async def pair(self, **changes: Any) -> tuple[Node, Node]:
        """Two nodes that are connected."""
        nodes = await self.start(0, **changes), await self.start(1, **changes)
        await until(lambda: all(node.transport.connected() for node in nodes))
        return nodes

    async def dial(self, target: int) -> Fake:
        """A raw connection to a node."""
        fake = Fake(*await asyncio.open_connection(*self.addresses[target]))
        self.fakes.append(fake)
        return fake

    async def proven(self, *, hello: bool = True) -> Fake:
        """Node 0, which has proven itself to node 1 and said who it is, or has not yet."""
        fake = await self.dial(1)
        await fake.prove(0, 1)
        if hello:
            fake.hello(0)
        return fake

    async def listen(self, node: int) -> asyncio.Queue[Fake]:
        """Stand where this node should listen; gives each connection that comes."""
        came: asyncio.Queue[Fake] = asyncio.Queue()

        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            fake = Fake(reader, writer)
            self.fakes.append(fake)
            came.put_nowait(fake)

        self.servers.append(await asyncio.start_server(take, *self.addresses[node]))
        return came

"""Connections between members in one event loop, with delays, losses and partitions.

A connection keeps the order of what is sent over it and loses all that is under way when it breaks.
Messages go through their bytes, as over a socket. What a sound peer never sends (PeerError) is kept
for the judge.
"""

from __future__ import annotations

import asyncio
from random import Random

from delaylog.broker.cluster.peers import PeerCounts
from delaylog.broker.cluster.peers.handshake import HandshakeError
from delaylog.broker.cluster.peers.transport import PeerConfig, PeerHost
from delaylog.replication.errors import PeerError
from delaylog.replication.messages import FolderIdentity, Hello, Message
from delaylog.replication.wire import Decoder, encode
from delaylog.storage.log.frames import KNOWN_LEVEL


class Link:
    """One connection of two nodes."""

    def __init__(self, network: Network, ends: tuple[MemoryTransport, MemoryTransport]) -> None:
        self.network = network
        self.ends = {end.node: end for end in ends}
        self.hellos = {end.node: end.hello() for end in ends}
        self.folders = {
            end.node: end.folders.identity(other.node) for end, other in (ends, ends[::-1])
        }
        self.broken = False
        self._last = dict.fromkeys(self.ends, 0.0)

    def judged(self) -> bool:
        """Whether each end takes the other's folder."""
        for node, folder in self.folders.items():
            try:
                self.other(node).folders.judge(node, self.hellos[node], folder, None)
            except HandshakeError as error:
                self.network.faults.append(error)
                return False
        return True

    def other(self, node: int) -> MemoryTransport:
        return next(end for number, end in self.ends.items() if number != node)

    def send(self, source: int, message: Message) -> None:
        loop, network = self.network.loop, self.network
        data = b"".join(bytes(block) for block in encode(message))
        at = max(self._last[source], loop.time() + network.delay())
        self._last[source] = at
        loop.call_at(at, self._deliver, source, data)

    def _deliver(self, source: int, data: bytes) -> None:
        target = self.other(source)
        if self.broken or not target.running:
            return
        if self.network.is_cut(source, target.node):
            return
        try:
            [message] = Decoder().feed(data)
            target.on_message(source, message)
        except PeerError as error:
            self.network.faults.append(error)
            self.break_off()

    def break_off(self) -> None:
        if self.broken:
            return
        self.broken = True
        for end in self.ends.values():
            end.links.pop(self.other(end.node).node, None)
        self.network.connect_soon()


class MemoryTransport:
    """Stands in for `PeerTransport`."""

    def __init__(
        self,
        network: Network,
        place: PeerConfig,
        host: PeerHost,
    ) -> None:
        self.network = network
        self.node = place.node
        self.hello = host.hello
        self.folders = host.folders
        self.on_message = host.on_message
        self.on_connect = host.on_connect
        self.levels = host.levels
        self.links: dict[int, Link] = {}
        self.running = False
        self.counts = PeerCounts()

    async def start(self) -> int:
        self.running = True
        self.network.here[self.node] = self
        self.network.connect_soon()
        return 1

    async def stop(self) -> None:
        self.off()

    def off(self) -> None:
        self.running = False
        if self.network.here.get(self.node) is self:
            del self.network.here[self.node]
        for link in list(self.links.values()):
            link.break_off()

    def connected(self) -> frozenset[int]:
        return frozenset(self.links)

    def hello_of(self, peer: int) -> Hello | None:
        link = self.links.get(peer)
        return None if link is None else link.hellos[peer]

    def known_level(self, peer: int) -> int | None:
        # A leader that is an older program raises nothing above what it knows itself.
        known = min(self.network.known_by(peer), self.network.known_by(self.node))
        return known if peer in self.links else None

    def folder_of(self, peer: int) -> FolderIdentity | None:
        link = self.links.get(peer)
        return None if link is None else link.folders[peer]

    def set_removed(self, removed: object, farewell: object) -> None:
        """Nobody is removed here."""

    def dial_all(self, *, wanted: bool) -> None:
        """Everybody is connected to everybody here."""

    def set_addresses(self, addresses: object) -> None:
        pass

    def drop(self, peer: int, reason: str) -> None:
        del reason
        self.network.break_link(self.node, peer)

    def send(self, peer: int, message: Message) -> None:
        link = self.links.get(peer)
        if link is not None:
            link.send(self.node, message)

    def flush(self) -> None:
        pass


class Network:
    """All connections."""

    def __init__(self, random: Random) -> None:
        self.loop = asyncio.get_running_loop()
        self.random = random
        self.here: dict[int, MemoryTransport] = {}
        self.cut: set[frozenset[int]] = set()
        self.slow = 0.0
        self.known: dict[int, int] = {}
        """The feature level that a node knows, if it is not the newest."""
        self.refused: set[int] = set()
        """Nodes that were refused because of it."""
        self.faults: list[BaseException] = []

    def known_by(self, node: int) -> int:
        return self.known.get(node, KNOWN_LEVEL)

    def delay(self) -> float:
        return self.random.random() * (0.001 + self.slow)

    def is_cut(self, one: int, other: int) -> bool:
        return frozenset((one, other)) in self.cut

    def isolate(self, node: int, others: list[int]) -> None:
        """What is under way is lost, and the connections are found dead a moment later."""
        for other in others:
            self.cut.add(frozenset((node, other)))
            self.loop.call_later(self.random.random() * 0.5, self._find_dead, node, other)

    def _find_dead(self, one: int, other: int) -> None:
        if self.is_cut(one, other):
            self.break_link(one, other)

    def heal(self) -> None:
        # What was lost on a connection is never sent on it again: it has to be a new one.
        for pair in self.cut:
            self.break_link(*pair)
        self.cut.clear()
        self.connect_soon()

    def break_link(self, one: int, other: int) -> None:
        transport = self.here.get(one)
        if transport is not None and other in transport.links:
            transport.links[other].break_off()

    def connect_soon(self) -> None:
        self.loop.call_later(0.005 + self.random.random() * 0.03, self._connect)

    def _connect(self) -> None:
        there = sorted(self.here)
        for one in there:
            for other in there:
                if one >= other or self.is_cut(one, other):
                    continue
                a, b = self.here.get(one), self.here.get(other)
                if a is None or b is None or other in a.links or one in b.links:
                    continue
                reached = max(a.levels().reached, b.levels().reached)
                older = {node for node in (one, other) if self.known_by(node) < reached}
                if older:
                    self.refused |= older
                    continue
                link = Link(self, (a, b))
                if not link.judged():
                    continue
                a.links[other] = b.links[one] = link
                a.on_connect(other)
                b.on_connect(one)

"""The connections of one node to all others: who is connected, what is sent, what is refused.

One connection per pair of nodes: the node with the smaller index dials, both use it. A newer proven
connection of the same peer takes the place of the older one. Messages of a connection keep
their order; what is lost with a connection is not sent again here, replication does that.

The steps of a connection are in handshake.py, its records in records.py.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Collection, Coroutine, Mapping
from functools import partial
from random import Random
from typing import Any, Final

from delaylog.broker.cluster.peers.connection import Connection
from delaylog.broker.cluster.peers.counts import PeerCounts, PeerTraffic, Refused
from delaylog.broker.cluster.peers.handshake import Identity
from delaylog.broker.cluster.peers.limits import PeerLimits
from delaylog.broker.cluster.peers.seams import PeerConfig, PeerHost
from delaylog.broker.cluster.peers.tls import (
    host_at,
    peer_lacks_tls,
    refuse_plain,
    tls_failure,
)
from delaylog.broker.host.accepting import accept_all
from delaylog.broker.host.watch.quiet_log import QuietLog
from delaylog.replication.messages import FolderIdentity, Hello, Message

_LOGGER: Final = logging.getLogger(__name__)
_BACKLOG: Final = 128


class PeerTransport:
    """Sends and receives messages between the nodes of a cluster. One loop, one thread."""

    def __init__(
        self,
        place: PeerConfig,
        host: PeerHost,
        *,
        limits: PeerLimits | None = None,
        random: Random | None = None,
    ) -> None:
        node = place.node
        self._addresses = dict(place.addresses)
        self._removed: set[int] = set()
        self._farewell: Message | None = None
        members = self._addresses.keys()
        self._identity = Identity(
            node, place.cluster_id, place.key, members, host.levels, self._removed
        )
        self._dials_all = False
        self._listen = place.listen
        self._hello = host.hello
        self._folders = host.folders
        self._on_message = host.on_message
        self._on_connect = host.on_connect
        self._on_disconnect = host.on_disconnect
        self._limits = limits or PeerLimits()
        self._random = random or Random()
        self._server_tls: ssl.SSLContext | None = None
        self._client_tls: ssl.SSLContext | None = None
        if place.tls is not None:
            self._server_tls, self._client_tls = place.tls.contexts()
        self.counts = PeerCounts()
        """Since the start."""
        for peer in place.addresses:
            if peer != node:
                self.counts.peers[peer] = PeerTraffic()
        self._open: dict[int, Connection] = {}
        self._told: dict[int, Connection] = {}
        """Peers whose `on_disconnect` is still to come."""
        self._alive: set[Connection] = set()
        """Every connection of which something is left."""
        self._unsent: set[Connection] = set()
        self._flush_due = False
        self._strangers: dict[Connection, asyncio.Task[None]] = {}
        """Accepted and not proven yet, oldest first."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._diallers: dict[int, asyncio.Task[None]] = {}
        self._looker: asyncio.TimerHandle | None = None
        self._looked_at = 0.0
        self._socket: socket.socket | None = None
        self._running = False
        self._log = QuietLog(_LOGGER)

    # ------------------------------------------------------------------ living

    async def start(self) -> int:
        """Listen and dial; returns the bound port. Raises OSError if it cannot listen."""
        assert not self._running
        loop = asyncio.get_running_loop()
        self._socket = socket.create_server(self._listen, backlog=_BACKLOG)
        self._socket.setblocking(False)
        self._running = True
        self._spawn(accept_all(self._socket, self._accept, self._note_refused_accept))
        self._dial()
        self._looked_at = loop.time()
        self._looker = loop.call_later(self._limits.look_ms / 1000, self._look)
        port: int = self._socket.getsockname()[1]
        return port

    async def stop(self) -> None:
        """End all connections. What was sent may still go out for a moment; nothing is left."""
        if not self._running:
            return
        self.flush()
        self._running = False
        if self._looker is not None:
            self._looker.cancel()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        left = [*self._alive]
        for connection in left:
            connection.close(None, "this node stops", gently=True)
        if left:
            lost = [connection.lost for connection in left]
            await asyncio.wait(lost, timeout=self._limits.stop_ms / 1000)
            for connection in left:
                connection.abort()
            await asyncio.wait(lost)
        for connection in [*self._told.values()]:
            self._tell_lost(connection)

    # ------------------------------------------------------------------ using

    def connected(self) -> frozenset[int]:
        """Peers that messages reach now."""
        return frozenset(self._open)

    def hello_of(self, peer: int) -> Hello | None:
        """What a connected peer said first."""
        connection = self._open.get(peer)
        return None if connection is None else connection.hello

    def known_level(self, peer: int) -> int | None:
        """The feature level that a connected peer knows; None while it is away."""
        connection = self._open.get(peer)
        return None if connection is None else connection.levels.known

    def folder_of(self, peer: int) -> FolderIdentity | None:
        """What a connected peer says of its folder; None if it is away or says nothing."""
        connection = self._open.get(peer)
        return None if connection is None else connection.folder

    def set_addresses(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """Know these nodes from now on. Connections to others, and to moved ones, are closed."""
        before = dict(self._addresses)
        # In place: handshakes look at its keys.
        self._addresses.clear()
        self._addresses.update(addresses)
        self._removed.difference_update(addresses)
        for peer, address in before.items():
            if self._addresses.get(peer) != address and peer != self._identity.node:
                dialler = self._diallers.pop(peer, None)
                if dialler is not None:
                    dialler.cancel()
                connection = self._open.get(peer)
                if connection is not None:
                    # What was said last may tell it why.
                    why = "it is no member any more, or has another address"
                    connection.close(Refused.HOST, why, gently=True)
        for peer in self._addresses.keys() - {self._identity.node}:
            self.counts.peers.setdefault(peer, PeerTraffic())
        if self._running:
            self._dial()

    def set_removed(self, removed: Collection[int], farewell: Message) -> None:
        """Tell these nodes that they were removed when they connect, and close the connection."""
        self._removed.clear()
        self._removed.update(removed)
        self._farewell = farewell
        for peer in removed:
            self.counts.peers.setdefault(peer, PeerTraffic())

    def dial_all(self, *, wanted: bool) -> None:
        """Whether to dial nodes with smaller indexes too: they do not dial a removed node."""
        self._dials_all = wanted
        own = self._identity.node
        for peer in [peer for peer in self._diallers if peer < own and not wanted]:
            self._diallers.pop(peer).cancel()
        if self._running:
            self._dial()

    def _dial(self) -> None:
        """Dial those that this node dials, and that nobody dials yet."""
        own = self._identity.node
        for peer in self._addresses.keys() - self._diallers.keys() - {own}:
            if peer > own or self._dials_all:
                self._diallers[peer] = self._spawn(self._keep_dialling(peer))

    def send(self, peer: int, message: Message) -> None:
        """Send it in this turn of the loop; dropped and counted while the peer is away."""
        connection = self._open.get(peer)
        if connection is None:
            if peer in self.counts.peers:
                self.counts.peers[peer].messages_dropped += 1
            return
        connection.send(message)
        self._unsent.add(connection)
        self._flush_soon()

    def flush(self) -> None:
        """Hand what was sent in this turn to the sockets now."""
        unsent, self._unsent = self._unsent, set()
        for connection in unsent:
            if connection.flush():
                self._unsent.add(connection)
                self._flush_soon()

    def drop(self, peer: int, reason: str) -> None:
        """Close the connection of a peer; it is dialled again."""
        connection = self._open.get(peer)
        if connection is not None:
            connection.close(Refused.HOST, reason)

    # ------------------------------------------------------------------ what connections tell

    def made(self, connection: Connection) -> None:
        """Until `lost`, something of it is left."""
        self._alive.add(connection)
        connection.lost.add_done_callback(lambda _: self._alive.discard(connection))

    def judge(self, connection: Connection, hello: Hello, folder: FolderIdentity) -> None:
        """A peer has said which folder it serves. Raises HandshakeError."""
        if connection.peer in self._removed:
            return
        present = self._open.get(connection.peer)
        connected = None if present is None else present.folder
        self._folders.judge(connection.peer, hello, folder, connected)

    def opened(self, connection: Connection) -> None:
        """A peer is proven, and has said HELLO and which folder it serves."""
        self._no_stranger(connection)
        peer = connection.peer
        if peer in self._removed and self._farewell is not None:
            connection.send(self._farewell)
            connection.flush()
            self._log.tell("removed", "node %d was removed from the cluster: it was told so", peer)
            connection.close(None, gently=True)
            return
        older = self._told.get(peer)
        if older is not None:
            older.close(Refused.REPLACED, "the peer has connected again")
            self._tell_lost(older)
        traffic = self.counts.peers[peer]
        traffic.connects += 1
        traffic.bytes_in += connection.traffic.bytes_in
        traffic.bytes_out += connection.traffic.bytes_out
        connection.traffic = traffic
        self._open[peer] = self._told[peer] = connection
        _LOGGER.info("node %d is connected", peer)
        self._on_connect(peer)

    def received(self, connection: Connection, message: Message) -> None:
        """A message of an open connection."""
        self._on_message(connection.peer, message)

    def turn_ended(self) -> None:
        """What the messages caused to be sent goes out at once."""
        if self._unsent:
            self.flush()

    def closed(self, connection: Connection, reason: Refused | None, detail: str) -> None:
        """Out of the tables now; the host hears of it from the loop."""
        if reason is not None:
            self.counts.refused[reason] += 1
            text = "a connection between nodes was closed, %s: %s"
            if reason is Refused.HOST:
                _LOGGER.info(text, "by this node", detail)
            else:
                self._log.tell(reason, text, reason, detail)
        self._unsent.discard(connection)
        told = [peer for peer, other in self._told.items() if other is connection]
        for peer in told:
            if self._open.get(peer) is connection:
                del self._open[peer]
            asyncio.get_running_loop().call_soon(self._tell_lost, connection)

    def _tell_lost(self, connection: Connection) -> None:
        peer = connection.peer
        if self._told.get(peer) is connection:
            del self._told[peer]
            _LOGGER.info("node %d is disconnected", peer)
            self._on_disconnect(peer)

    # ------------------------------------------------------------------ connecting

    def _connection(self, expected: int | None = None) -> Connection:
        return Connection(
            self,
            self._identity,
            self._hello,
            folder=self._folders.identity,
            limits=self._limits,
            expected=expected,
        )

    def _note_refused_accept(self, error: OSError) -> None:
        self._log.tell("accept", "cannot accept connections of other nodes: %s", error)

    def _accept(self, sock: socket.socket) -> None:
        """A connection came; it has a task of its own until it has proven itself."""
        while len(self._strangers) >= self._limits.strangers_max:
            oldest, task = next(iter(self._strangers.items()))
            oldest.close(Refused.CROWD, "too many connections that have not proven themselves")
            task.cancel()
            del self._strangers[oldest]
        connection = self._connection()
        task = self._spawn(self._welcome(connection, sock))
        self._strangers[connection] = task
        task.add_done_callback(partial(self._welcomed, connection, sock))
        self._count_strangers()

    async def _welcome(self, connection: Connection, sock: socket.socket) -> None:
        """Let an accepted connection prove itself, within its time."""
        where = host_at(sock)
        try:
            async with asyncio.timeout(self._limits.stranger_ms / 1000):
                if self._server_tls and await refuse_plain(sock):
                    connection.close(Refused.TLS, peer_lacks_tls(where))
                    return
                with connection.made_or_lost():
                    await asyncio.get_running_loop().connect_accepted_socket(
                        lambda: connection,
                        sock,
                        **self._tls(self._server_tls),
                    )
                await connection.settled
        except OSError as error:
            # It may have been just in time, and be told so only now.
            if connection.hello is not None:
                return
            if isinstance(error, TimeoutError):
                connection.close(Refused.LATE, "it has not proven itself in time")
            else:
                text = tls_failure(error, where)
                connection.close(Refused.TLS if self._server_tls else Refused.CUT, text)

    def _welcomed(self, connection: Connection, sock: socket.socket, _: asyncio.Task[None]) -> None:
        self._no_stranger(connection)
        if connection not in self._alive:
            sock.close()

    def _no_stranger(self, connection: Connection) -> None:
        if self._strangers.pop(connection, None) is not None:
            self._count_strangers()

    def _count_strangers(self) -> None:
        counts = self.counts
        counts.strangers = len(self._strangers)
        counts.strangers_most = max(counts.strangers_most, counts.strangers)

    async def _keep_dialling(self, peer: int) -> None:
        """Have a connection to this peer, always."""
        limits = self._limits
        longest_ms = limits.redial_min_ms
        while True:
            other = self._open.get(peer)
            if other is not None:
                # The peer has dialled this node.
                await asyncio.shield(other.lost)
            connection = self._connection(peer)
            await self._connect(peer, connection)
            if connection.hello is not None:
                began = asyncio.get_running_loop().time()
                await asyncio.shield(connection.lost)
                lived_s = asyncio.get_running_loop().time() - began
                if lived_s * 1000 > limits.redial_max_ms:
                    longest_ms = limits.redial_min_ms
            longest_ms = min(2 * longest_ms, limits.redial_max_ms)
            await asyncio.sleep(self._random.uniform(limits.redial_min_ms, longest_ms) / 1000)

    async def _connect(self, peer: int, connection: Connection) -> None:
        """Connect to a peer and prove to each other who is who, within the time for it."""
        host, port = self._addresses[peer]
        try:
            async with asyncio.timeout(self._limits.stranger_ms / 1000):
                with connection.made_or_lost():
                    await asyncio.get_running_loop().create_connection(
                        lambda: connection,
                        host,
                        port,
                        **self._tls(self._client_tls),
                    )
                await connection.settled
        except OSError as error:
            if connection.hello is not None:
                return
            text = tls_failure(error, f"{host}:{port}") or "no answer in time"
            self._log.tell(
                f"dial {peer}", "cannot reach node %d at %s:%d: %s", peer, host, port, text
            )
            if isinstance(error, ssl.SSLError):
                connection.close(Refused.TLS, text)
            elif connection in self._alive:
                connection.close(Refused.LATE, f"node {peer} has not proven itself in time")
            else:
                connection.close(None)
        if connection.hello is None:
            self.counts.peers[peer].dials_failed += 1

    def _tls(self, context: ssl.SSLContext | None) -> dict[str, Any]:
        """How asyncio is told to use TLS, and how long that may take to begin and to end."""
        # Without TLS it wants no times either.
        limit_s = None if context is None else self._limits.stranger_ms / 1000
        return {
            "ssl": context,
            "ssl_handshake_timeout": limit_s,
            "ssl_shutdown_timeout": limit_s,
        }

    # ------------------------------------------------------------------ looking on

    def _look(self) -> None:
        """Pings and silent peers. Time in which this loop stood still is nobody's silence."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        look_s = self._limits.look_ms / 1000
        stood_still_s = now - self._looked_at - look_s
        self._looked_at = now
        for connection in [*self._alive]:
            if stood_still_s > look_s:
                connection.heard_at = min(now, connection.heard_at + stood_still_s)
            connection.look(now)
        self._looker = loop.call_later(look_s, self._look)

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush_due_now)

    def _flush_due_now(self) -> None:
        self._flush_due = False
        self.flush()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

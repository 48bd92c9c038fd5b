"""The connections of one node to all others: dials them, accepts them, and sends messages.

Each pair of nodes uses one connection, which the node with the smaller index dials. A newer
authenticated connection of the same peer replaces the older one. Messages of a connection keep
their order; messages that are lost with a connection are not sent again here: replication does
that. The steps of a connection are in handshake.py, its records in records.py.

`PeerConfig`, `PeerHost` and `PeerTransport` are the interface between a node and its connections.
`Strangers` limits the number and the time of accepted connections that are not authenticated yet.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from delaylog.broker.cluster.peers.connection import Connection
from delaylog.broker.cluster.peers.handshake import (
    NONCE_SIZE,
    Identity,
    Keys,
    Levels,
    PeerCounts,
    Refused,
)
from delaylog.broker.cluster.peers.records import PeerLimits
from delaylog.broker.cluster.peers.tls import (
    PeerTls,
    connect,
    host_at,
    peer_lacks_tls,
    refuse_plain,
    tls_failure,
)
from delaylog.broker.host.machine import Machine
from delaylog.broker.host.system.name_lookup import Names
from delaylog.broker.host.tls.failed_handshakes import alerting
from delaylog.broker.host.tls.listener import Acceptor
from delaylog.broker.host.watch.quiet_log import QuietLog
from delaylog.broker.rules.addresses import host_port
from delaylog.replication.messages import FolderIdentity, Hello, Message
from delaylog.storage.log.frames import KNOWN_LEVEL

# -------------------------------------------------------------------------------- the interface


class PeerFolders(Protocol):
    """The identities of data folders; see members/folders.py."""

    def identity(self, peer: int) -> FolderIdentity:
        """The identity of this node's folder to send to a peer."""

    def judge(
        self, peer: int, hello: Hello, theirs: FolderIdentity, connected: FolderIdentity | None
    ) -> None:
        """Accept the peer's folder, or raise HandshakeError."""


@dataclass(frozen=True, slots=True)
class PeerConfig:
    """The configuration of a node's connections."""

    node: int
    cluster_id: bytes
    keys: Keys
    """Keys of 32 bytes or more, used for nothing else."""
    addresses: Mapping[int, tuple[str, int]]
    """Addresses of all nodes; see `set_addresses`."""
    listen: tuple[str, int]
    tls: PeerTls | None = None


@dataclass(frozen=True, slots=True)
class PeerHost:
    """The owner of a node's connections: what it sends to peers, and its callbacks."""

    hello: Callable[[], Hello]
    folders: PeerFolders
    on_message: Callable[[int, Message], None]
    """May raise PeerError, which closes the connection."""
    on_connect: Callable[[int], None]
    on_disconnect: Callable[[int, bool], None]
    """Called once after each `on_connect`, never from inside `send`, `flush` or `drop`. True = the
    other side closed the connection, as the kernel does when a process ends."""
    levels: Callable[[], Levels] = lambda: Levels(KNOWN_LEVEL)
    describe: Callable[[int], str] = "node {}".format
    """A node for messages, such as `node 2 (beta)`."""
    stretch: Callable[[], float] = lambda: 1.0
    """By how much the machine is busy: a peer may be silent that much longer."""


# --------------------------------------------------- connections that are not authenticated yet


class Strangers:
    """The connections of one transport that are not authenticated yet."""

    def __init__(self, limits: PeerLimits, counts: PeerCounts, tls: PeerTls | None) -> None:
        self._limits = limits
        self._counts = counts
        self._tls = tls
        self._tasks: dict[Connection, asyncio.Task[None]] = {}
        """By connection, oldest first."""

    def add(self, connection: Connection, task: asyncio.Task[None]) -> None:
        """A connection was accepted, and `task` runs its `welcome`; too many close the oldest."""
        while len(self._tasks) >= self._limits.strangers_max:
            oldest = next(iter(self._tasks))
            oldest.close(Refused.CROWD, "too many connections that are not authenticated")
            self._tasks.pop(oldest).cancel()
        self._tasks[connection] = task
        self._count()

    async def welcome(self, connection: Connection, sock: socket.socket) -> None:
        """Let the peer authenticate itself within `stranger_ms`."""
        context = None if self._tls is None else self._tls.server
        try:
            async with asyncio.timeout(self._limits.stranger_ms / 1000):
                if context and await refuse_plain(sock):
                    connection.close(Refused.TLS, peer_lacks_tls(connection.who))
                    return
                with connection.made_or_lost(), alerting(sock):
                    await asyncio.get_running_loop().connect_accepted_socket(
                        lambda: connection, sock, **tls_options(context, self._limits)
                    )
                await connection.settled
        except OSError as error:
            # The peer may have been just in time, and the timeout was noticed only now.
            if connection.hello is not None:
                return
            if isinstance(error, TimeoutError):
                connection.close(Refused.LATE, "the peer did not authenticate itself in time")
            else:
                text = tls_failure(error, connection.who)
                connection.close(Refused.TLS if context else Refused.CUT, text)

    def remove(self, connection: Connection) -> None:
        """The connection is authenticated, or its task has ended."""
        if self._tasks.pop(connection, None) is not None:
            self._count()

    def _count(self) -> None:
        counts = self._counts
        counts.strangers = len(self._tasks)
        counts.strangers_most = max(counts.strangers_most, counts.strangers)


def tls_options(context: ssl.SSLContext | None, limits: PeerLimits) -> dict[str, Any]:
    """The arguments for asyncio to use TLS, with time limits for its begin and its end."""
    # Without TLS asyncio accepts no time limits.
    limit_s = None if context is None else limits.stranger_ms / 1000
    return {"ssl": context, "ssl_handshake_timeout": limit_s, "ssl_shutdown_timeout": limit_s}


# -------------------------------------------------------------------------------- the transport

_LOGGER: Final = logging.getLogger(__name__)
_BACKLOG: Final = 128
_DOUBLINGS_MAX: Final = 10
"""Of the pause between dials that are refused; it reaches its bound earlier."""


class PeerTransport:
    """Sends and receives messages between the nodes of a cluster. One loop, one thread."""

    def __init__(
        self,
        config: PeerConfig,
        host: PeerHost,
        machine: Machine,
        *,
        limits: PeerLimits | None = None,
    ) -> None:
        node = config.node
        self._addresses = dict(config.addresses)
        self._removed: set[int] = set()
        self._farewell: Message | None = None
        members = self._addresses.keys()
        self._identity = Identity(
            node, config.cluster_id, config.keys, members, host.levels, self._removed
        )
        self._dials_all = False
        self._listen = config.listen
        self._host = host
        self._on_message = host.on_message
        self._limits = limits or PeerLimits()
        self._random = machine.random()
        self.nonce = partial(machine.random_bytes, NONCE_SIZE)
        """Returns random bytes for one handshake."""
        self._tls = config.tls
        self.counts = PeerCounts()
        """Counters since the start."""
        self.counts.include(config.addresses.keys() - {node})
        self._open: dict[int, Connection] = {}
        self._told: dict[int, Connection] = {}
        """Peers whose `on_disconnect` was not called yet."""
        self._alive: set[Connection] = set()
        """Every connection whose socket is not closed yet."""
        self._unsent: set[Connection] = set()
        self._flush_due = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._diallers: dict[int, asyncio.Task[None]] = {}
        self._looker: asyncio.TimerHandle | None = None
        self._looked_at = 0.0
        self._acceptor: Acceptor | None = None
        self._running = False
        self._log = QuietLog(_LOGGER)
        self._names = Names()
        self._refused: dict[int, int] = {}
        """Authenticated connections of a peer in a row that ended soon."""
        self._strangers = Strangers(self._limits, self.counts, config.tls)

    # ------------------------------------------------------------------ life

    async def start(self) -> int:
        """Listen and dial; returns the bound port. Raises OSError if it cannot listen."""
        assert not self._running
        loop = asyncio.get_running_loop()
        listener = _listener(*self._listen)
        self._acceptor = Acceptor(listener, self._accept, self._accept_failed)
        self._running = True
        self._dial()
        self._looked_at = loop.time()
        self._looker = loop.call_later(self._limits.look_ms / 1000, self._look)
        return self._acceptor.port

    async def stop(self) -> None:
        """End all connections. Sent messages have `stop_ms` to drain; then sockets are closed."""
        if not self._running:
            return
        self.flush()
        self._running = False
        if self._acceptor is not None:
            self._acceptor.close()
        if self._looker is not None:
            self._looker.cancel()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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

    # ------------------------------------------------------------------ use

    def connected(self) -> frozenset[int]:
        """Peers with an open connection."""
        return frozenset(self._open)

    def hello_of(self, peer: int) -> Hello | None:
        """The HELLO of a connected peer; None if it is away."""
        connection = self._open.get(peer)
        return None if connection is None else connection.hello

    def known_level(self, peer: int) -> int | None:
        """The feature level that a connected peer knows; None if it is away."""
        connection = self._open.get(peer)
        return None if connection is None else connection.levels.known

    def folder_of(self, peer: int) -> FolderIdentity | None:
        """The folder identity of a connected peer; None if it is away."""
        connection = self._open.get(peer)
        return None if connection is None else connection.folder

    def set_addresses(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """Connect to these nodes from now on; close connections to others and to moved ones."""
        before = dict(self._addresses)
        # Changed in place, since handshakes read its keys.
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
                    # Gently, since a farewell may be waiting.
                    why = "the peer is no member any more, or has another address"
                    connection.close(Refused.HOST, why, gently=True)
        self.counts.include(self._addresses.keys() - {self._identity.node})
        if self._running:
            self._dial()

    def set_removed(self, removed: Collection[int], farewell: Message) -> None:
        """When one of these nodes connects, send it the farewell and close the connection."""
        self._removed.clear()
        self._removed.update(removed)
        self._farewell = farewell
        self.counts.include(removed)

    def dial_all(self, *, wanted: bool) -> None:
        """Set whether to dial nodes with smaller indexes too: they do not dial a removed node."""
        self._dials_all = wanted
        own = self._identity.node
        for peer in [peer for peer in self._diallers if peer < own and not wanted]:
            self._diallers.pop(peer).cancel()
        if self._running:
            self._dial()

    def _dial(self) -> None:
        """Start dialling the nodes that this node has to dial and does not dial yet."""
        own = self._identity.node
        for peer in self._addresses.keys() - self._diallers.keys() - {own}:
            if peer > own or self._dials_all:
                self._diallers[peer] = self._spawn(self._keep_dialling(peer))

    def send(self, peer: int, message: Message) -> None:
        """Send a message in this turn of the loop; drop and count it if the peer is away."""
        connection = self._open.get(peer)
        if connection is None:
            if peer in self.counts.peers:
                self.counts.peers[peer].messages_dropped += 1
            return
        connection.send(message)
        self._unsent.add(connection)
        self._flush_soon()

    def flush(self) -> None:
        """Hand the messages of this turn to the sockets now."""
        unsent, self._unsent = self._unsent, set()
        for connection in unsent:
            if connection.flush():
                self._unsent.add(connection)
                self._flush_soon()

    def drop(self, peer: int, reason: str) -> None:
        """Close the connection to a peer; it is dialled again."""
        connection = self._open.get(peer)
        if connection is not None:
            connection.close(Refused.HOST, reason)

    # ------------------------------------------------------------------ calls of connections

    def made(self, connection: Connection) -> None:
        """The socket is connected; it stays in use until `lost` is done."""
        self._alive.add(connection)
        connection.lost.add_done_callback(lambda _: self._alive.discard(connection))

    def judge(self, connection: Connection, hello: Hello, folder: FolderIdentity) -> None:
        """A peer has sent the identity of its folder. Raises HandshakeError."""
        if self._was_removed(connection.peer, folder):
            return
        present = self._open.get(connection.peer)
        connected = None if present is None else present.folder
        self._host.folders.judge(connection.peer, hello, folder, connected)

    def _was_removed(self, peer: int, folder: FolderIdentity | None) -> bool:
        """Whether a peer is no member. One with a later configuration may have been added again."""
        if peer not in self._removed:
            return False
        return folder is None or folder.version <= self._host.folders.identity(peer).version

    def opened(self, connection: Connection) -> None:
        """A peer is authenticated, and has sent HELLO and the identity of its folder."""
        self._strangers.remove(connection)
        peer = connection.peer
        if self._farewell is not None and self._was_removed(peer, connection.folder):
            connection.send(self._farewell)
            connection.flush()
            self._log.tell("removed", "node %d was removed from the cluster, and was told so", peer)
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
        _LOGGER.log(self._level(peer), "node %d is connected", peer)
        self._host.on_connect(peer)

    def received(self, connection: Connection, message: Message) -> None:
        """A message of an open connection. May raise PeerError."""
        self._on_message(connection.peer, message)

    def turn_ended(self) -> None:
        """Send at once what the received messages caused."""
        if self._unsent:
            self.flush()

    def closed(self, connection: Connection, reason: Refused | None, detail: str) -> None:
        """Remove it from the tables now; the host is told in the next turn of the loop."""
        if reason is not None:
            self.counts.refused[reason] += 1
            text = "a connection between nodes was closed, %s: %s"
            if connection.who not in detail:
                detail = f"{connection.who}: {detail}"
            if reason is Refused.HOST:
                _LOGGER.info(text, "by this node", detail)
            else:
                self._log.tell(reason, text, reason, detail)
        self._unsent.discard(connection)
        told = [peer for peer, other in self._told.items() if other is connection]
        for peer in told:
            if self._open.get(peer) is connection:
                del self._open[peer]
            ended = reason in (None, Refused.CUT)
            tell = partial(self._tell_lost, connection, ended=ended)
            asyncio.get_running_loop().call_soon(tell)

    def _tell_lost(self, connection: Connection, *, ended: bool = False) -> None:
        peer = connection.peer
        if self._told.get(peer) is connection:
            del self._told[peer]
            _LOGGER.log(self._level(peer), "node %d is disconnected", peer)
            self._refused[peer] = self._refused.get(peer, 0) + 1 if connection.was_refused else 0
            self._host.on_disconnect(peer, ended)

    def _level(self, peer: int) -> int:
        """The level at which a connection of the peer is logged: one of many that end soon is not
        worth two lines more.
        """
        many = self._refused.get(peer, 0) > self._limits.refusals_quick
        return logging.DEBUG if many else logging.INFO

    # ------------------------------------------------------------------ connecting

    def _connection(self, who: str, expected: int | None = None) -> Connection:
        return Connection(
            self,
            self._identity,
            self._host.hello,
            folder=self._host.folders.identity,
            limits=self._limits,
            who=who,
            expected=expected,
        )

    def _who_at(self, host: str) -> str:
        """Who has connected from a host: several nodes of a test may have one."""
        known = [
            self._host.describe(peer)
            for peer, (at, _) in self._addresses.items()
            if self._names.is_at(at, host) and peer != self._identity.node
        ]
        return f"{' or '.join(known) or 'a node'} at {host}"

    def _accept(self, sock: socket.socket) -> None:
        connection = self._connection(self._who_at(host_at(sock)))
        task = self._spawn(self._strangers.welcome(connection, sock))
        self._strangers.add(connection, task)
        task.add_done_callback(lambda _: self._welcomed(connection, sock))

    def _welcomed(self, connection: Connection, sock: socket.socket) -> None:
        self._strangers.remove(connection)
        if connection not in self._alive:
            sock.close()

    def _accept_failed(self, error: OSError) -> None:
        self._log.tell("accept", "cannot accept connections of other nodes: %s", error)

    async def _keep_dialling(self, peer: int) -> None:
        """Keep a connection to this peer open."""
        limits = self._limits
        longest_ms = limits.redial_min_ms
        refusals = 0
        while True:
            other = self._open.get(peer)
            if other is not None:
                # The peer has dialled this node already.
                await asyncio.shield(other.lost)
            who = f"{self._host.describe(peer)} at {host_port(self._addresses[peer])}"
            connection = self._connection(who, peer)
            await self._connect(peer, connection)
            if connection.hello is not None:
                began = asyncio.get_running_loop().time()
                await asyncio.shield(connection.lost)
                lived_s = asyncio.get_running_loop().time() - began
                if lived_s * 1000 > limits.redial_max_ms:
                    longest_ms = limits.redial_min_ms
            longest_ms = min(2 * longest_ms, limits.redial_max_ms)
            pause_ms = self._random.uniform(limits.redial_min_ms, longest_ms)
            refusals = refusals + 1 if connection.was_refused else 0
            if refusals > limits.refusals_quick:
                doubled = min(refusals - limits.refusals_quick, _DOUBLINGS_MAX)
                pause_ms += min(limits.redial_max_ms << doubled, limits.refused_max_ms)
            await asyncio.sleep(pause_ms / 1000)

    async def _connect(self, peer: int, connection: Connection) -> None:
        """Connect to a peer and authenticate each other, within `stranger_ms`."""
        host, port = self._addresses[peer]
        try:
            async with asyncio.timeout(self._limits.stranger_ms / 1000):
                context = None if self._tls is None else self._tls.client
                with connection.made_or_lost():
                    sock = await connect(await self._names.addresses(host, port))
                    loop = asyncio.get_running_loop()
                    try:
                        with alerting(sock):
                            await loop.create_connection(
                                lambda: connection,
                                sock=sock,
                                server_hostname=None if context is None else host,
                                **tls_options(context, self._limits),
                            )
                    finally:
                        if not isinstance(loop, asyncio.BaseEventLoop):
                            # libuv closes the descriptor. uvloop takes the socket over only later:
                            # of a connection that is lost before, the socket would close the
                            # number again, which may be that of another file.
                            sock.detach()
                await connection.settled
        except asyncio.CancelledError:
            # Nobody waits for its handshake any more, which may never end.
            if connection.hello is None:
                connection.close(None)
            raise
        except OSError as error:
            if connection.hello is not None:
                return
            text = "no answer in time"
            if isinstance(error, socket.gaierror):
                text = f"the name cannot be resolved: {error.strerror}"
            elif not isinstance(error, TimeoutError):
                text = tls_failure(error, connection.who)
            self._log.tell(f"dial {peer}", "cannot reach %s: %s", connection.who, text)
            if isinstance(error, ssl.SSLError):
                connection.close(Refused.TLS, text)
            elif connection in self._alive:
                connection.close(Refused.LATE, f"node {peer} did not authenticate itself in time")
            else:
                connection.close(None)
        if connection.hello is None:
            self.counts.peers[peer].dials_failed += 1

    # ------------------------------------------------------------------ checks

    def _look(self) -> None:
        """Send pings and close silent connections.

        Time in which this loop was blocked does not count as silence of the peers.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        look_s = self._limits.look_ms / 1000
        blocked_s = now - self._looked_at - look_s
        self._looked_at = now
        silent_ms = self._limits.silent_ms * self._host.stretch()
        for connection in [*self._alive]:
            if blocked_s > look_s:
                connection.heard_at = min(now, connection.heard_at + blocked_s)
            connection.look(now, silent_ms)
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


def _listener(host: str, port: int) -> socket.socket:
    """A listening socket; no host = on all addresses of the machine. Raises OSError."""
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
            )
    # IPv6 may be switched off; another error comes again.
    return socket.create_server(("", port), backlog=_BACKLOG)

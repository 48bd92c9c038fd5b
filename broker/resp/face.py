"""The Redis-compatible server of one node: its listener and its clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host.system import descriptors
from delaylog.broker.host.system.resets import Resets
from delaylog.broker.host.tls.contexts import ServerTls, client_certificate
from delaylog.broker.host.tls.listener import TlsListener
from delaylog.broker.host.watch.quiet_log import QuietLog
from delaylog.broker.keyspace.command import Command
from delaylog.broker.keyspace.commands.information import value_of
from delaylog.broker.keyspace.errors import HELD, NO_MEMORY, READ_ONLY
from delaylog.broker.keyspace.replies import ErrorReply, Reply, encode_into
from delaylog.broker.keyspace.running.executor import DEFERRED_BYTES_MIN, Executor
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.running.shared_state import ServerState
from delaylog.broker.resp.access import FailedLogins, NodeUsers
from delaylog.broker.resp.facts import MemoryBound, address_text, listens, tell
from delaylog.broker.resp.native_host import NativeHost
from delaylog.broker.resp.native_verbs import dl_send
from delaylog.broker.resp.parser import CommandParser, RequestLimits
from delaylog.broker.resp.turns import Restoring, Turns, keyspace_of
from delaylog.broker.resp.unread_replies import ReplyBound, ReplyCount
from delaylog.storage.errors import DISTRUSTED
from delaylog.storage.log.sizes import PAYLOAD_BYTES_MAX

if TYPE_CHECKING:
    from delaylog.broker.resp.connection import Connection

SETTLE_SECONDS: Final = 1.0
"""A command waits this long while a cluster changes its leader."""
COMMAND_BYTES_MAX: Final = PAYLOAD_BYTES_MAX - (1 << 20)
"""Limit of a request, which is kept in memory until it is complete. The effects of a command of
this size fit in one frame, where an argument takes no more bytes than on the wire. Only effects
that combine several values (a transaction, a script) need several frames.
"""
_BACKLOG: Final = 4_096
NATIVE_VERBS: Final = (dl_send,)
"""Its module is imported because it registers commands."""
_READ_ONLY: Final = ErrorReply(READ_ONLY)
_DISK_FULL: Final = ErrorReply(
    b"DISKFULL the disk has no room; reads, removals and deliveries go on"
)
_SWEEP_SECONDS: Final = 15.0
"""Interval of sweeps. A client whose command is unfinished in two sweeps and hardly grew between
them is closed."""
_NO_MEMORY: Final = ErrorReply(NO_MEMORY)
_AGAIN_SECONDS: Final = 0.05
"""Interval of further tries while a change of leaders takes long."""

log = logging.getLogger("delaylog.resp")


class RespFace:
    """Serves one node to Redis clients."""

    def __init__(
        self,
        node: ServingNode,
        server: ServerState,
        *,
        after_write: bool = False,
        maxmemory: int = 0,
        scripts: bool = True,
    ) -> None:
        self._node = node
        self.loop = asyncio.get_running_loop()
        self.server = server
        self.limits = RequestLimits(command_bytes_max=COMMAND_BYTES_MAX)
        tell(server, node, after_write=after_write)
        self.executor = Executor(keyspace_of(node.engine.state), server)
        self.executor.may_write = self._may_write
        self.executor.may_grow = self._may_grow
        self.executor.held = lambda: node.engine.state.holding.now is not None
        self.executor.may_take = self._may_take
        self.memory = MemoryBound(maxmemory)
        self.replies = ReplyBound(
            maxmemory, self.loop, close=self._close_unread, on_room=self._serve_deferred_soon
        )
        self.executor.defers = self._defers
        server.given[b"maxmemory"] = b"%d" % maxmemory
        self.executor.on_bug = self._note_bug
        self.restoring = Restoring(node, self._forget_turn)
        self.executor.on_script_stopped = self.restoring.undo_script
        self.executor.scripts_allowed = scripts
        self.executor.on_attack = self._note_attack
        self.executor.waits.clock_ms = lambda: int(self.loop.time() * 1000)
        self.turns = Turns(
            node,
            after_write=after_write,
            before=self._before_end,
            note_lost=self.note_lost,
            broken=self.restoring.broken,
        )
        self.native = self.executor.host = NativeHost(node, self.turns)
        self.connections: dict[int, Connection] = {}
        self._clients_max = min(descriptors.served().clients, int(value_of(server, b"maxclients")))
        server.given[b"maxclients"] = b"%d" % self._clients_max
        self.other_connections: Callable[[], int] = lambda: 0
        """The number of HTTP connections, which share the descriptors."""
        self._listener: asyncio.Server | TlsListener | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self.failed_logins = FailedLogins(self.loop.time)
        self._quiet = QuietLog(log)
        self.resets = Resets()
        server.on_wrong_password = self.failed_logins.note
        server.login_wait_s = self.failed_logins.left
        self._unsettled_from: float | None = None
        """Loop time since which no leader is known, or None."""
        self.users = server.users = NodeUsers(node, self.executor, self.native, self.connections)
        node.on_end_leading = self._led_until_now
        node.on_applied = self._applied
        node.holds.on_held = lambda: self.executor.waits.end_held(ErrorReply(HELD))

    # ------------------------------------------------------------------ life

    async def start(
        self,
        make: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        tls: ServerTls | None = None,
    ) -> int:
        """Listen and return the port. `make` creates the protocol of a new connection."""
        if tls is None:
            self._listener = await self.loop.create_server(make, host, port, backlog=_BACKLOG)
            port = int(self._listener.sockets[0].getsockname()[1])
        else:
            self._listener = TlsListener(
                tls,
                client="a Redis client",
                make=make,
                is_full=lambda: self.is_full(accepting=True),
                transports=lambda: [each.transport for each in self.connections.values()],
            )
            port = await self._listener.start(host, port, _BACKLOG)
        listens(self.server, host, port)
        self._sweep()
        return port

    def _sweep(self) -> None:
        """Close clients that send a command very slowly."""
        for connection in list(self.connections.values()):
            if connection.stalls():
                log.warning(
                    "a Redis client is closed: it did not finish its command",
                    extra={"address": connection.session.address.decode()},
                )
                connection.abort()
        self._sweeper = self.loop.call_later(_SWEEP_SECONDS, self._sweep)

    async def close_listener(self) -> None:
        """Stop accepting connections."""
        if self._listener is not None:
            self._listener.close()

    async def stop(self) -> None:
        """Close connections after the replies that they are owed; blocked commands get none."""
        if self._timer is not None:
            self._timer.cancel()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.replies.stop()
        for _ in range(100):
            owed = any(connection.owed for connection in self.connections.values())
            if not (owed or self.turns.under_way):
                break
            await asyncio.sleep(0.01)
        self._close_all()
        self.resets.close()

    def _close_all(self) -> None:
        """Close all connections; commands that wait get no reply, see `Waits.end_all`."""
        self.executor.waits.end_all()
        for connection in list(self.connections.values()):
            connection.close()

    # ------------------------------------------------------------------ clients

    def new_parser(self) -> CommandParser:
        """Return a parser for a new connection."""
        return CommandParser(self.limits, authenticated=not self.users.required)

    @property
    def open_connections(self) -> int:
        """The number of clients and of connections that are in their TLS handshake."""
        waiting = self._listener.handshakes if isinstance(self._listener, TlsListener) else 0
        return len(self.connections) + waiting

    def is_full(self, *, accepting: bool = False) -> bool:
        """Whether the limit of clients is reached; if so, the new client is counted as refused.

        `accepting`: the new client has not begun its TLS handshake, so connections in their
        handshake count too.
        """
        own = self.open_connections if accepting else len(self.connections)
        full = own + self.other_connections() >= self._clients_max
        self.server.refused_connections += full
        return full

    def enter(self, connection: Connection, transport: asyncio.Transport) -> Session:
        """Create the session of a new client."""
        certificate = client_certificate(transport)
        session = self.executor.connect(self._node.clock.now_ms(), certificate)
        self.server.connections += 1
        session.address = address_text(transport.get_extra_info("peername"))
        session.local_address = address_text(transport.get_extra_info("sockname"))
        if (sock := transport.get_extra_info("socket")) is not None:
            session.descriptor = sock.fileno()
        session.worker = connection
        session.on_output = self._has_output
        self.connections[session.number] = connection
        return session

    def leave(self, connection: Connection) -> None:
        """End the session of a client that has gone."""
        self.connections.pop(connection.session.number, None)
        self.turns.drop(connection)
        self.executor.disconnect(connection.session)

    def _has_output(self, session: Session) -> None:
        connection = self.connections.get(session.number)
        if connection is not None:
            connection.has_output()

    # ------------------------------------------------------------------ turns

    def _note_bug(self, command: Command, bug: Exception) -> None:
        log.error("a command failed", exc_info=bug, extra={"command": command.name.decode()})
        if command.write or isinstance(bug, DISTRUSTED):
            self.restoring.broken(bug)

    def note_lost(self, connection: Connection, error: Exception) -> None:
        """Log that a client is closed because of an unexpected error."""
        log.error(
            "the connection of a Redis client is closed",
            exc_info=error,
            extra={"address": connection.session.address.decode()},
        )

    def note_tls(self) -> None:
        """Log that a client began a TLS handshake on this port without TLS."""
        self._quiet.tell("tls", "a Redis client speaks TLS, and this port does not")

    def close(self, connection: Connection, reason: str) -> None:
        """Close a client that takes too much memory."""
        log.warning(
            "the connection of a Redis client is closed: %s",
            reason,
            extra={"address": connection.session.address.decode()},
        )
        connection.abort()

    # ------------------------------------------------------------------ unread replies

    def _close_unread(self, replies: ReplyCount) -> None:
        connection, size = self.connections[replies.session.number], replies.counted_bytes
        self.close(connection, f"it has {size:,} bytes of replies, and there is no room for more")

    def _defers(self, reply: Reply, resp: int) -> bool:
        """Whether a blocked command that only reads has to wait for room for its reply."""
        if not self.replies.is_used_up:
            return False
        pieces: list[bytes] = []
        encode_into(pieces, reply, resp)
        if sum(map(len, pieces)) <= DEFERRED_BYTES_MIN:
            return False
        self.replies.wait_for_room()
        return True

    def _serve_deferred_soon(self) -> None:
        """Serve deferred replies later, since a command of another client may be running."""
        self.loop.call_soon(self._serve_deferred)

    def _serve_deferred(self) -> None:
        if self.ready():
            self.begin().serve_deferred()
        else:
            self.loop.call_later(_AGAIN_SECONDS, self._serve_deferred)

    def _note_attack(self, session: Session) -> None:
        log.warning(
            "Possible SECURITY ATTACK detected: a client sent POST or Host: as HTTP does, perhaps "
            "a web page in somebody's browser. Its connection is closed.",
            extra={"address": session.address.decode()},
        )

    def _forget_turn(self) -> None:
        """Drop the effects of this turn, which will never be in the log."""
        self.native.forget()
        self.turns.give_up()

    def ready(self) -> bool:
        """Whether commands can run now."""
        node = self._node
        state = node.engine.state
        if node.suspended or state.retired or state.keyspace.condemned:
            return False
        if not self.turns.begun and node.engine.housekeeping.crowded():
            return False
        if node.role.settled:
            self._unsettled_from = None
            return True
        return self._is_waited_out()

    async def until_ready(self) -> None:
        """Wait until commands can run: a short change of leaders only delays them.

        After `SETTLE_SECONDS` without a leader they run as on a node without one.
        """
        node = self._node
        if not node.role.settled and not self._is_waited_out():
            if self._unsettled_from is None:
                self._unsettled_from = self.loop.time()
            left = self._unsettled_from + SETTLE_SECONDS - self.loop.time()
            await node.role.until_settled(max(left, _AGAIN_SECONDS))
        with suppress(NotLeadingError):
            await node.room()
        while node.suspended:  # noqa: ASYNC110 (an exchange takes seconds, and is rare)
            await asyncio.sleep(0.05)
        # The engine and the keyspace are being replaced.
        while node.engine.state.retired or node.engine.state.keyspace.condemned:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    def _is_waited_out(self) -> bool:
        """Whether clients have waited `SETTLE_SECONDS` for a leader.

        Where this node still leads, they wait until its hand-over has ended, which has a deadline.
        """
        since = self._unsettled_from
        if since is None or self._node.role.leading:
            return False
        return self.loop.time() - since >= SETTLE_SECONDS

    def begin(self) -> Executor:
        """Begin to run commands. All commands of a turn see the same time."""
        executor = self.executor
        keyspace = keyspace_of(self._node.engine.state)
        first = self.turns.begin()
        if first:
            self.users.look()
        if executor.keyspace is not keyspace:
            executor.exchange(keyspace)
        elif not first:
            return executor
        leading = self._node.role.leading
        executor.out_of_touch = self._unsettled_from is not None and not leading
        executor.begin(self._node.clock.now_ms())
        return executor

    def _before_end(self) -> None:
        self.native.flush()
        self.arm()

    def arm(self) -> None:
        """Set the timer for the next timeout of a blocked command."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        first_ms = self.executor.waits.end_late()
        if first_ms is not None:
            delay = max(first_ms - self.executor.waits.clock_ms(), 0) / 1000 + 0.001
            self._timer = self.loop.call_later(delay, self.arm)

    # ------------------------------------------------------------------ leading

    def _may_grow(self) -> ErrorReply | None:
        if self._node.engine.upkeep.short_of_space:
            return _DISK_FULL
        return self._may_take(0)

    def _may_take(self, size: int) -> ErrorReply | None:
        return _NO_MEMORY if self.memory.refuses(size) else None

    def _may_write(self) -> ErrorReply | None:
        return None if self._node.role.may_dispatch() else _READ_ONLY

    def _applied(self) -> None:
        """Wake blocked readers, which wait on followers too."""
        keyspace = keyspace_of(self._node.engine.state)
        # If the keyspace was replaced, blocked commands end.
        if keyspace.ready or keyspace is not self.executor.keyspace:
            self.begin().serve_waiting()

    def _led_until_now(self) -> None:
        """Close all connections, so that their clients look for the leader.

        The effects of this turn may never be committed, so its clients get no replies. Subscribers
        have to go too: the messages are published at the new leader.
        """
        self._unsettled_from = None
        self._forget_turn()
        self._close_all()

"""Listens for clients over TLS and counts them from the moment they are accepted.

asyncio reports a TLS connection only after its handshake. Without this listener, sockets that never
start one would be counted nowhere and could use up all file descriptors. So `Acceptor` accepts
connections one by one, and they are counted before their handshake.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from delaylog.broker.host.tls.contexts import ServerTls
from delaylog.broker.host.tls.failed_handshakes import alerting, is_plain
from delaylog.broker.host.watch.quiet_log import QuietLog

# ------------------------------------------------------------------------- accepted connections

_PAUSE_S: Final = 0.05
"""Pause after a failed accept, for example when no file descriptor is free."""


class Acceptor:
    """Accepts the connections of one listening socket, one in a turn of the loop.

    `loop.sock_accept` is not used, since it loses a connection that comes in the turn of the loop
    in which it is cancelled.
    """

    def __init__(
        self,
        listener: socket.socket,
        took: Callable[[socket.socket], None],
        note: Callable[[OSError], None],
    ) -> None:
        """Begin to accept; `note` is called with each error. Closes `listener` at the end."""
        listener.setblocking(False)
        self._listener = listener
        self._took = took
        self._note = note
        self._loop = asyncio.get_running_loop()
        self._resuming: asyncio.TimerHandle | None = None
        self._resume()

    @property
    def port(self) -> int:
        """The port on which it listens."""
        port: int = self._listener.getsockname()[1]
        return port

    def close(self) -> None:
        """Stop accepting and close the listening socket."""
        if self._resuming is not None:
            self._resuming.cancel()
        else:
            self._loop.remove_reader(self._listener)
        self._listener.close()

    def _resume(self) -> None:
        self._resuming = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            self._loop.remove_reader(self._listener)
            self._resuming = self._loop.call_later(_PAUSE_S, self._resume)
            self._note(error)
            return
        sock.setblocking(False)
        self._took(sock)


# --------------------------------------------------------------------------------- the listener

HANDSHAKE_SECONDS: Final = 5.0
"""A connection whose handshake takes longer is closed. The same limit holds for the end of TLS,
when the broker waits for the client's close_notify.
"""
HANDSHAKES_MAX: Final = 256
"""Limit of handshakes under way; a further one closes the oldest. A handshake takes a millisecond
of the loop. Clients that connect, wait, and begin at the same moment must not block it for seconds.
"""
_CHECKS_A_TURN: Final = 32
"""Client certificates that are checked in one turn of the loop; each takes some 30 us."""
_NOT_HERE: Final = frozenset((errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL))
"""Errors for an address of a family that the kernel does not have, or that is disabled."""

log = logging.getLogger("delaylog.tls")


class TlsListener:
    """The sockets of one host name, and the connections that are in their handshake."""

    def __init__(
        self,
        tls: ServerTls,
        *,
        client: str,
        make: Callable[[], asyncio.Protocol],
        is_full: Callable[[], bool],
        transports: Callable[[], Iterable[asyncio.Transport | None]],
    ) -> None:
        """`make` creates the protocol of a connection. A new connection is refused if `is_full`.

        `client` = the name of a client in the log. `transports` returns the open connections.
        """
        self._tls = tls
        self._client = client
        self._make = make
        self._is_full = is_full
        self._transports = transports
        self._acceptors: list[Acceptor] = []
        self._handshakes: dict[asyncio.Task[None], None] = {}
        """The connections that are in their handshake, oldest first."""
        self._log = QuietLog(log)
        tls.on_exchange.append(self._close_distrusted)

    @property
    def handshakes(self) -> int:
        """The number of connections that are in their handshake."""
        return len(self._handshakes)

    async def start(self, host: str, port: int, backlog: int) -> int:
        """Listen on all addresses of `host`; returns their common port. Raises OSError.

        Addresses of a family that this machine does not have are skipped, unless all are.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for listener in _bind_all(dict.fromkeys(found), port, backlog):
            acceptor = Acceptor(listener, self._accept, self._log_accept_error)
            self._acceptors.append(acceptor)
            port = acceptor.port
        return port

    def close(self) -> None:
        """Stop accepting and close the connections that are in their handshake."""
        for acceptor in self._acceptors:
            acceptor.close()
        for handshake in self._handshakes:
            handshake.cancel()

    async def _close_distrusted(self) -> None:
        """Close the connections whose client certificate is not trusted any more."""
        for number, transport in enumerate([*self._transports()]):
            if number % _CHECKS_A_TURN == 0:
                await asyncio.sleep(0)
            if transport is not None and not self._tls.trusts(transport):
                transport.abort()

    def _log_accept_error(self, error: OSError) -> None:
        self._log.tell("accept", "cannot accept %s: %s", self._client, error)

    def _accept(self, sock: socket.socket) -> None:
        if self._is_full():
            sock.close()
            return
        while len(self._handshakes) >= HANDSHAKES_MAX:
            self._log.tell("crowd", "%s is closed: too many have begun no TLS yet", self._client)
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._handshake(sock))
        self._handshakes[task] = None
        task.add_done_callback(partial(self._end_handshake, sock, _peer_of(sock)))

    async def _handshake(self, sock: socket.socket) -> None:
        context = self._tls.context
        with alerting(sock):
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                self._make,
                sock,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=HANDSHAKE_SECONDS,
            )
        if context is not self._tls.context and not self._tls.trusts(transport):
            # The client CAs were replaced during the handshake.
            transport.abort()

    def _end_handshake(self, sock: socket.socket, address: str, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)
        if task.cancelled():
            sock.close()
        elif (error := task.exception()) is not None:
            self._log_failed(error, address)
            sock.close()

    def _log_failed(self, error: BaseException, address: str) -> None:
        """Log why a handshake failed, unless the client only disconnected or was too slow."""
        client = f"{self._client} at {address}"
        if is_plain(error):
            self._log.tell("plain", "%s does not speak TLS, which this port requires", client)
        elif isinstance(error, ssl.SSLError):
            if not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
                why = _why(error)
                self._log.tell("handshake", "the TLS handshake with %s failed: %s", client, why)
        elif not isinstance(error, OSError):
            log.error("unexpected error in a TLS handshake", exc_info=error)


def _why(error: ssl.SSLError) -> str:
    """Why a handshake failed; for a refused certificate with OpenSSL's reason."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return error.reason or str(error)


def _peer_of(sock: socket.socket) -> str:
    """The address of a client; asyncio closes the socket when its handshake fails."""
    try:
        return str(sock.getpeername()[0])
    except OSError:
        return "an unknown address"


def _bind_all(found: Iterable[tuple[Any, ...]], port: int, backlog: int) -> list[socket.socket]:
    """Bind a socket to each address of `getaddrinfo`, all to one port. Raises OSError."""
    sockets: list[socket.socket] = []
    skipped: OSError | None = None
    try:
        for family, *_, (host, _, *scope) in found:
            # The rest of an IPv6 address holds the interface of a link-local one.
            address = (host, port, *scope)
            try:
                sockets.append(socket.create_server(address, family=family, backlog=backlog))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                skipped = error
                continue
            port = sockets[-1].getsockname()[1]
        if skipped is not None and not sockets:
            raise skipped
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets

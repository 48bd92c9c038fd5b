"""Accepted connections that are not authenticated yet: limits their number and their time."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

from delaylog.broker.cluster.peers.connection import Connection
from delaylog.broker.cluster.peers.counts import PeerCounts, Refused
from delaylog.broker.cluster.peers.limits import PeerLimits
from delaylog.broker.cluster.peers.tls import (
    PeerTls,
    peer_lacks_tls,
    refuse_plain,
    tls_failure,
)
from delaylog.broker.host.tls.alerts import alerting


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

"""What a peer learns of a failed TLS handshake, also if only one side speaks TLS.

The event loops close the socket of a failed handshake without what OpenSSL has written last: the
alert, which tells the peer why it is refused. The contexts of this module send it before. No
descriptor is spent on that: strangers could use up all. TLS on one side only is told apart from
garbage, so that both sides learn what is wrong.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, cast

# --------------------------------------------------------------------------------------- alerts

_SOCKET: Final[ContextVar[list[socket.socket]]] = ContextVar("_SOCKET")
"""The socket of the connection that is being made, until it is: the event loops make it in a
callback with the context of the block. Later callbacks, and what they start, have this context too,
so the list is emptied.
"""


class AlertingContext(ssl.SSLContext):
    """A context whose connections, made in a block of `alerting`, send the alert of a failure."""

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **how: Any
    ) -> Any:
        """A connection over memory, as the event loops use it."""
        made = super().wrap_bio(incoming, outgoing, *args, **how)
        cast("_Connection", made).outgoing = outgoing
        waiting = _SOCKET.get([])
        cast("_Connection", made).socket = waiting.pop() if waiting else None
        return made


class _Connection(ssl.SSLObject):
    outgoing: ssl.MemoryBIO
    socket: socket.socket | None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.socket is not None:
                with suppress(OSError):
                    self.socket.send(self.outgoing.read())
            raise
        self.socket = None


AlertingContext.sslobject_class = _Connection


@contextmanager
def alerting(sock: socket.socket) -> Iterator[None]:
    """Send the peer the alert of a handshake on this socket that fails in this block."""
    waiting = [sock]
    before = _SOCKET.set(waiting)
    try:
        yield
    finally:
        waiting.clear()
        _SOCKET.reset(before)


# ------------------------------------------------------------------------- TLS on one side only

_OPENING: Final = b"\x16\x03"
"""The first bytes of a TLS handshake."""
ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x46"
"""A fatal alert (protocol_version) as a TLS record, for a client whose handshake a plain port got.
Event loops drop the alert of OpenSSL.
"""
_PLAIN: Final = (
    *("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER"),
    *("HTTP_REQUEST", "HTTPS_PROXY_REQUEST"),
)
"""OpenSSL's reasons for a handshake whose first bytes are not TLS."""


def opens_with_tls(data: bytes | bytearray) -> bool:
    """Whether the first bytes of a client of a plain port begin a TLS handshake."""
    return data.startswith(_OPENING)


def is_plain(error: BaseException) -> bool:
    """Whether a handshake failed because the client of a TLS port does not speak TLS."""
    if not isinstance(error, ssl.SSLError):
        return False
    said = error.reason or str(error)
    return any(reason in said for reason in _PLAIN)

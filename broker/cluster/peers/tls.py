"""TLS between nodes: both sides need a certificate of one authority.

TLS encrypts the connection. The cluster's secret still authenticates the nodes, so a certificate
need not name a host.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass
from typing import Final

from delaylog.broker.host.tls.wrong_port import ALERT, is_plain
from delaylog.replication.errors import ClusterError


@dataclass(frozen=True, slots=True)
class PeerTls:
    """Files, all PEM: the authority's certificate, this node's certificate and its key."""

    ca: str
    cert: str
    key: str

    def contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """The contexts for the listener and for the dialler. Raises ClusterError."""
        return self._context(ssl.PROTOCOL_TLS_SERVER), self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, side: ssl._SSLMethod) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(self.ca)
        except (OSError, ssl.SSLError) as error:
            raise ClusterError(f"tls.ca {self.ca} is not a certificate in PEM: {error}") from None
        try:
            context.load_cert_chain(self.cert, self.key, password="")
        except (OSError, ssl.SSLError, ValueError) as error:
            text = f"tls.cert {self.cert} and tls.key {self.key} are not a pair in PEM: {error}"
            raise ClusterError(text) from None
        return context


# ------------------------------------------------------------------ TLS on one side only

_IN_TLS: Final = (b"\x15\x03", b"\x16\x03")
"""The first bytes of a TLS alert and of a TLS handshake."""
ANSWER_IN_PLAIN: Final = b"DLPR\x01"
"""The first bytes of a challenge. A plain node answers a TLS handshake with them, so that the peer
can tell that TLS is missing: they are as long as the header of a TLS record."""
_CHALLENGE_BYTES: Final = 64


def answers_in_tls(data: bytearray) -> bool:
    """Whether a peer that was sent a plain challenge answered with a TLS alert."""
    return data.startswith(_IN_TLS)


async def refuse_plain(sock: socket.socket) -> bool:
    """Whether an accepted connection begins like that of a node without TLS; it then gets an alert.

    If not, no byte of the connection is consumed.
    """
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(sock, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(sock)
    if sock.recv(len(ANSWER_IN_PLAIN), socket.MSG_PEEK) != ANSWER_IN_PLAIN:
        return False
    # Unread bytes would make the peer see a reset instead of the answer.
    sock.recv(_CHALLENGE_BYTES)
    sock.send(ALERT)
    return True


def peer_lacks_tls(where: str) -> str:
    """The message of a node with TLS about a peer without it."""
    return (
        f"a node at {where} does not speak TLS; this node has [tls] in its cluster file, and all "
        "nodes need it or none"
    )


def peer_has_tls(where: str) -> str:
    """The message of a node without TLS about a peer with it."""
    return f"a node at {where} speaks TLS; this node has no [tls] in its cluster file"


def tls_failure(error: BaseException, where: str) -> str:
    """The message of a node with TLS about a failed TLS handshake."""
    return peer_lacks_tls(where) if is_plain(error) else str(error)


def host_at(sock: socket.socket) -> str:
    """The host at the other end of an accepted socket, for a message."""
    try:
        return str(sock.getpeername()[0])
    except OSError:
        return "an unknown address"


def host_of(transport: asyncio.BaseTransport | None) -> str:
    """The host at the other end of a connection, for a message."""
    address = None if transport is None else transport.get_extra_info("peername")
    return str(address[0]) if address else "an unknown address"

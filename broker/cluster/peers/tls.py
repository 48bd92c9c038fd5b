"""TLS between nodes: certificates of one authority, asked of both sides.

It hides what goes over the wire. Who speaks is proven by the cluster's secret all the same, so a
certificate need not name a host.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass
from typing import Final

from delaylog.replication.errors import ClusterError


@dataclass(frozen=True, slots=True)
class PeerTls:
    """Files, all PEM: the authority's certificate, this node's certificate and its key."""

    ca: str
    cert: str
    key: str

    def contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """(for who listens, for who dials). Raises ClusterError."""
        return self._context(ssl.PROTOCOL_TLS_SERVER), self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, side: ssl._SSLMethod) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(self.ca)
        except (OSError, ssl.SSLError) as error:
            raise ClusterError(f"tls.ca {self.ca} is no certificate in PEM: {error}") from None
        try:
            context.load_cert_chain(self.cert, self.key, password="")
        except (OSError, ssl.SSLError, ValueError) as error:
            text = f"tls.cert {self.cert} and tls.key {self.key} are no pair in PEM: {error}"
            raise ClusterError(text) from None
        return context


# ------------------------------------------------------------------ TLS on one side only

_HANDSHAKE: Final = b"\x16\x03"
_ALERT: Final = b"\x15\x03"
ANSWER_IN_PLAIN: Final = b"DLPR\x01"
"""How a challenge begins. A plain node sends it to one that opens with TLS, which knows by it that
no TLS answers: it has as many bytes as the header of a TLS record."""
_ANSWER_IN_TLS: Final = b"\x15\x03\x03\x00\x02\x02\x46"
"""A fatal alert (protocol_version) as a TLS record; event loops drop the one that OpenSSL makes."""
_CHALLENGE_BYTES: Final = 64
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER", "HTTP_REQUEST")


def opens_with_tls(data: bytearray) -> bool:
    """Whether a peer that should have sent a challenge began a TLS handshake."""
    return data.startswith(_HANDSHAKE)


def answers_in_tls(data: bytearray) -> bool:
    """Whether a peer that was sent a plain challenge answered with a TLS alert."""
    return data.startswith((_ALERT, _HANDSHAKE))


async def refuse_plain(sock: socket.socket) -> bool:
    """Whether an accepted connection begins like a node without TLS, which is told so then.

    Nothing is taken from a connection that does not.
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
    # What is left unread would have the peer see a reset rather than the answer.
    sock.recv(_CHALLENGE_BYTES)
    sock.send(_ANSWER_IN_TLS)
    return True


def peer_lacks_tls(where: str) -> str:
    """What a node with TLS says of one that has none."""
    return (
        f"a node at {where} does not speak TLS; this node has [tls] in its cluster file, and all "
        "nodes need it or none"
    )


def peer_has_tls(where: str) -> str:
    """What a node without TLS says of one that has it."""
    return f"a node at {where} speaks TLS; this node has no [tls] in its cluster file"


def tls_failure(error: BaseException, where: str) -> str:
    """What a node with TLS says of a handshake that failed."""
    if isinstance(error, ssl.SSLError) and any(
        reason in (error.reason or str(error)) for reason in _NOT_TLS
    ):
        return peer_lacks_tls(where)
    return str(error)


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

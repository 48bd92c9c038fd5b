"""TLS between nodes: both sides need a certificate of one authority.

TLS encrypts the connection. The cluster's secret still authenticates the nodes, so a certificate
need not name a host. The files are read again without a restart: new connections use the new
certificates, and open ones go on, since the secret has authenticated them.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from delaylog.broker.host.machine import REAL
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.system.name_lookup import Found
from delaylog.broker.host.tls import certificates
from delaylog.broker.host.tls.certificates import Authorities, Certificate, Fault, Gravity, Hosts
from delaylog.broker.host.tls.contexts import load_pair, trust
from delaylog.broker.host.tls.failed_handshakes import ALERT, AlertingContext, is_plain
from delaylog.broker.host.watch.reloader import Use

_CA: Final = "tls.ca"
_CERT: Final = "tls.cert"
_KEY: Final = "tls.key"
_ALERT: Final = "_ALERT_"
"""In OpenSSL's reason, before what the peer has said."""


class PeerTls:
    """This node's certificate and the CAs of all nodes: `[tls]` of a cluster file."""

    def __init__(
        self, ca: str, cert: str, key: str, now_s: Callable[[], float] = REAL.wall_s
    ) -> None:
        """Read the files, which are PEM: the CAs, this node's certificate and its key.

        `now_s` = seconds since the epoch. Raises ConfigError, also for certificates that have
        expired, are not valid yet, or are not of one of the CAs.
        """
        self.ca, self.cert, self.key = ca, cert, key
        self._now_s = now_s
        self.hosts = Hosts()
        """The name and addresses of this node."""
        self._loaded = self._load()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it is read from."""
        return self.ca, self.cert, self.key

    @property
    def server(self) -> ssl.SSLContext:
        """The context for connections that are accepted now."""
        return self._loaded[0]

    @property
    def client(self) -> ssl.SSLContext:
        """The context for connections that are dialled now."""
        return self._loaded[1]

    def read(self) -> Use:
        """Read the files again, on any thread; returns the function that puts them into use."""
        loaded = self._load()

        async def use() -> None:
            self._loaded = loaded

        return use

    def faults(self) -> list[Fault]:
        """What is wrong with the certificates in use."""
        return self._faults(*self._loaded[2:])

    def ends(self) -> dict[str, float]:
        """When the certificates in use end, in seconds since the epoch, by source."""
        _, _, chain, cas = self._loaded
        end_s = float(min(each.end_s for each in chain))
        return {"node": end_s} | certificates.end_of_authorities("node_ca", cas, self._now_s())

    def _faults(self, chain: tuple[Certificate, ...], cas: Authorities) -> list[Fault]:
        now_s = self._now_s()
        faults = [
            *certificates.validity(_CERT, chain, now_s),
            *certificates.authority_faults(_CA, cas, now_s),
        ]
        if chain[0].hosts:
            # Nodes verify no names. One of another node shows that files were mixed up.
            wrong = certificates.names(_CERT, chain[0], self.hosts)
            faults += [replace(each, gravity=Gravity.WARNS) for each in wrong]
        return faults

    def _load(
        self,
    ) -> tuple[ssl.SSLContext, ssl.SSLContext, tuple[Certificate, ...], Authorities]:
        server, client = (
            self._context(side) for side in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
        )
        # Before the CAs are trusted, since OpenSSL sends the one that it knows, too.
        chain = certificates.presented(f"{_CERT} {self.cert}", server)
        cas = certificates.authorities(trust(server, _CA, self.ca))
        trust(client, _CA, self.ca)
        certificates.refuse(self._faults(chain, cas))
        why = certificates.mutual_refusal(server, client)
        if why:
            raise ConfigError(
                f"{_CERT} {self.cert}: other nodes with the same {_CA} {self.ca} would refuse it: "
                f"{why}: issue it by a CA of that file, for clients and servers"
            )
        return server, client, chain, cas

    def _context(self, side: ssl._SSLMethod) -> ssl.SSLContext:
        context = AlertingContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        load_pair(context, _CERT, self.cert, _KEY, self.key)
        return context


# ------------------------------------------------------------------ connections


async def connect(addresses: Found) -> socket.socket:
    """A socket that is connected to the first of the addresses that answers. Raises OSError."""
    loop = asyncio.get_running_loop()
    failed: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError as error:
            failed = error
            sock.close()
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failed or OSError("the name has no address")


def tls_failure(error: BaseException, who: str) -> str:
    """Why the TLS connection with `who` failed, for the message of a node with TLS."""
    if is_plain(error):
        return peer_lacks_tls(who)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and _ALERT in (error.reason or ""):
        said = (error.reason or "").partition(_ALERT)[2].replace("_", " ").lower()
        return f"it refuses the certificate of this node: {said}"
    return str(error) or "it ended the TLS handshake without a reason; its log may have one"


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


def peer_lacks_tls(who: str) -> str:
    """The message of a node with TLS about a peer without it."""
    return (
        f"{who} does not speak TLS; this node has [tls] in its cluster file, and all nodes need it "
        "or none"
    )


def peer_has_tls(who: str) -> str:
    """The message of a node without TLS about a peer with it."""
    return f"{who} speaks TLS; this node has no [tls] in its cluster file"


def host_at(sock: socket.socket) -> str:
    """The host at the other end of an accepted socket, for a message."""
    try:
        return str(sock.getpeername()[0])
    except OSError:
        return "an unknown address"

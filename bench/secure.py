"""What authentication and TLS cost a small request: single JSON sends, in turns.

Four brokers: open, with a token, over TLS, over TLS with a token. A connection of TLS is made
once and kept, as clients do; the handshake is a row of its own, since each new connection pays it.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import procfs
from broker_process import Brokers, ServerProcess
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from load import BLOCKED, HttpLane
from rounds import COLUMNS, Case, Endpoint, figures, fixed, in_turns, ratio
from settings import BODY_BYTES, SINGLES_LANES, Settings
from tables import Column, Table, times
from wire import json_request

PATH: Final = "/v1/topics/t/messages"
OPEN: Final = "open"
TOKEN: Final = "with a token"
TLS: Final = "over TLS"
BOTH: Final = "over TLS, with a token"
HANDSHAKES: Final = 200


class TlsLane(HttpLane):
    """An HTTP lane over TLS. The certificate is not verified: the client's cost is not measured."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.socket.setblocking(True)
        self.socket = _client_context().wrap_socket(self.socket, server_hostname="localhost")
        self.socket.setblocking(False)

    def push(self) -> bool:
        """Send on; True when the request has left."""
        while self._left:
            try:
                sent = self.socket.send(self._left[0])
            except BLOCKED:
                return False
            self._left[0] = memoryview(self._left[0])[sent:]
            if not self._left[0]:
                self._left.pop(0)
        return True


def measure(brokers: Brokers, settings: Settings) -> Table:
    """One table; ratios are taken round by round."""
    table = Table(
        f"authentication and TLS: single JSON sends, {BODY_BYTES} B bodies, {SINGLES_LANES} "
        f"connections, {settings.singles_rounds} rounds in turns",
        [*COLUMNS, Column("of open", "of_open", times)],
    )
    body = b'{"body": "%b", "delay_ms": 3600000}' % (b"x" * BODY_BYTES)
    plain = json_request(PATH, body)
    with ExitStack() as stack:
        pair = stack.enter_context(_certificate(brokers))
        tls = ("--tls-cert", str(pair))
        cases: dict[str, Case] = {}
        for name, options in ((OPEN, ()), (TOKEN, ()), (TLS, tls), (BOTH, tls)):
            broker = stack.enter_context(brokers.fresh(*options))
            request = plain
            if name in (TOKEN, BOTH):
                token = _first_token(broker, secured=bool(options))
                request = _with_token(plain, token)
            lane = TlsLane if options else HttpLane
            endpoint = Endpoint(broker.port, broker.process_id, lane)
            cases[name] = fixed(endpoint, [request], SINGLES_LANES)
        rounds = in_turns(cases, settings.singles_rounds, settings.singles_round_s)
        handshake_us = _handshake_us(cases[TLS].endpoint)
    for name, done in rounds.items():
        row: dict[str, Any] = figures(done)
        row["of_open"] = None if name == OPEN else ratio(done, rounds[OPEN])
        table.add(name, row)
    table.notes.append(
        f"A TLS 1.3 handshake takes {handshake_us:,.0f} us of the broker's processor."
    )
    return table


def _with_token(request: bytes, token: str) -> bytes:
    head, end, body = request.partition(b"\r\n\r\n")
    return head + f"\r\nAuthorization: Bearer {token}".encode() + end + body


def _first_token(broker: ServerProcess, *, secured: bool) -> str:
    """Make the first administrator of an open broker; from then on it requires tokens."""
    connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=10)
    if secured:
        connection.sock = TlsLane(broker.port).socket
        connection.sock.setblocking(True)
    connection.request("PUT", "/v1/principals/bench", b'{"grants": ["admin"]}')
    token: str = json.loads(connection.getresponse().read())["token"]
    connection.close()
    return token


def _handshake_us(endpoint: Endpoint) -> float:
    """Processor time of the broker for a connection that is made and closed."""
    before = procfs.cpu_seconds(endpoint.server_id)
    for _ in range(HANDSHAKES):
        TlsLane(endpoint.port).socket.close()
    time.sleep(0.2)
    return (procfs.cpu_seconds(endpoint.server_id) - before) / HANDSHAKES * 1e6


def _client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextmanager
def _certificate(brokers: Brokers) -> Iterator[Path]:
    """A file with a key (P-256) and a certificate that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .sign(key, hashes.SHA256())
    )
    with brokers.folder() as folder:
        pair = folder / "pair.pem"
        pair.touch(mode=0o600)
        pem = serialization.Encoding.PEM
        private = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        pair.write_bytes(private + made.public_bytes(pem))
        yield pair

"""TLS between nodes: certificates of one authority, asked of both sides.

It hides what goes over the wire. Who speaks is proven by the cluster's secret all the same, so a
certificate need not name a host.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

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

"""Which certificates this node trusts when it calls other nodes of its cluster over HTTPS."""

from __future__ import annotations

import ssl

from delaylog.broker.host.tls.pem import trust
from delaylog.broker.host.watch.reloader import Use


class ClientTls:
    """The context for calls to other nodes, from the CAs of `tls-ca`."""

    def __init__(self, path: str) -> None:
        """Read the file. Raises ConfigError."""
        self._path = path
        self.context = self._load()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it is read from."""
        return (self._path,)

    def read(self) -> Use:
        """Read the file again, on any thread; returns the function that puts it into use."""
        context = self._load()

        async def use() -> None:
            self.context = context

        return use

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        trust(context, "tls-ca", self._path)
        return context

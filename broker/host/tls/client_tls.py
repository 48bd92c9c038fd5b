"""Which certificates this node trusts when it calls other nodes of its cluster over HTTPS."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

from delaylog.broker.host.machine import REAL
from delaylog.broker.host.tls import certificates
from delaylog.broker.host.tls.certificates import Authorities, Fault
from delaylog.broker.host.tls.pem import trust
from delaylog.broker.host.watch.reloader import Use

_CA: Final = "tls-ca"


class ClientTls:
    """The context for calls to other nodes, from the CAs of `tls-ca`."""

    def __init__(self, path: str, now_s: Callable[[], float] = REAL.wall_s) -> None:
        """Read the file. `now_s` = seconds since the epoch. Raises ConfigError, also if all CAs
        in it have expired.
        """
        self._path = path
        self._now_s = now_s
        self.context, self._cas = self._load()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it is read from."""
        return (self._path,)

    def read(self) -> Use:
        """Read the file again, on any thread; returns the function that puts it into use."""
        context, cas = self._load()

        async def use() -> None:
            self.context, self._cas = context, cas

        return use

    def roots(self) -> list[bytes]:
        """The CAs, in DER."""
        return [*self._cas.ders]

    def faults(self) -> list[Fault]:
        """What is wrong with the CAs in use."""
        return self._faults(self._cas)

    def ends(self) -> dict[str, float]:
        """When the next of the CAs in use ends, in seconds since the epoch, by source."""
        return certificates.end_of_authorities("http_ca", self._cas, self._now_s())

    def _faults(self, cas: Authorities) -> list[Fault]:
        return [*certificates.authority_faults(_CA, cas, self._now_s())]

    def _load(self) -> tuple[ssl.SSLContext, Authorities]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        cas = certificates.authorities(trust(context, _CA, self._path))
        certificates.refuse(self._faults(cas))
        return context, cas

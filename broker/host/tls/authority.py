"""A certificate authority: its own certificate, and those that it issues to hosts.

For `delaylog cluster certs` and for drills: a broker itself issues none. The caller gives all
times and keeps the files. Needs the package cryptography, which is optional, so import this module
only where a certificate is made.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from delaylog.broker.host.settings import ConfigError

_DNS_NAME: Final = re.compile(r"[A-Za-z0-9*_.-]+")


class Authority:
    """A key that signs certificates, and the certificate of this key."""

    def __init__(self, key: Any, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(
        cls, name: str, begin: datetime, end: datetime, key_pem: bytes | None = None
    ) -> Self:
        """A new authority, which signs itself; `key_pem`: with this key."""
        if key_pem is None:
            key: Any = ec.generate_private_key(ec.SECP256R1())
        else:
            key = load_pem_private_key(key_pem, None)
        builder = _builder(_named(name), _named(name), key, key, begin, end)
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        builder = builder.add_extension(constraints, critical=True)
        return cls(
            key, builder.add_extension(_usage(ca=True), critical=True).sign(key, hashes.SHA256())
        )

    @classmethod
    def read(cls, key_pem: bytes, pem: bytes) -> Self:
        """The authority of these files."""
        return cls(load_pem_private_key(key_pem, None), x509.load_pem_x509_certificate(pem))

    @property
    def key_pem(self) -> bytes:
        """Its private key."""
        return _key_pem(self._key)

    @property
    def pem(self) -> bytes:
        """Its certificate."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def end(self) -> datetime:
        """When its certificate ends."""
        return self._certificate.not_valid_after_utc

    def issue(
        self, name: str, hosts: Iterable[str], begin: datetime, end: datetime, *, node: bool
    ) -> tuple[bytes, bytes]:
        """A new key and its certificate, for servers; a `node` is a client of others, too."""
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.SERVER_AUTH]
        if node:
            uses.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        certificate = (
            _builder(_named(name), self._certificate.subject, key, self._key, begin, end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(
                x509.SubjectAlternativeName([_host(each) for each in dict.fromkeys(hosts)]),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return _key_pem(key), certificate.public_bytes(Encoding.PEM)


def _builder(
    name: x509.Name, issuer: x509.Name, key: Any, signer: Any, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    public, above = key.public_key(), signer.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(above), critical=False)
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not _DNS_NAME.fullmatch(host):
            raise ConfigError(f"{host!r} is no address and no name of a host") from None
        return x509.DNSName(host)


def _key_pem(key: Any) -> bytes:
    encoded: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return encoded

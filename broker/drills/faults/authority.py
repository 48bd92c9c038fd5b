"""A certificate authority of a drill. Its certificates may last for seconds only."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_BEGAN_BEFORE: Final = datetime.timedelta(days=2)
"""How long before its end a certificate begins: so the end of each one is near, and worth a
warning.
"""
_AUTHORITY_LASTS: Final = datetime.timedelta(days=1)

_SIGNS: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """An authority, and the one key of all certificates that it issues."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._issued_key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        end = datetime.datetime.now(datetime.UTC) + _AUTHORITY_LASTS
        self.pem = _pem(self._sign(self._name, self._key.public_key(), end, ca=True))
        self.key_pem = self._issued_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        """The private key of the certificates."""

    def issue(self, name: str, end_s: int) -> bytes:
        """A certificate for loopback until `end_s`, in seconds since the epoch."""
        end = datetime.datetime.fromtimestamp(end_s, datetime.UTC)
        return _pem(self._sign(_named(name), self._issued_key.public_key(), end, ca=False))

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, end: datetime.datetime, *, ca: bool
    ) -> x509.Certificate:
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        signer = self._key.public_key()
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - _BEGAN_BEFORE)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False
            )
        )
        if ca:
            made = made.add_extension(_SIGNS, critical=True)
        return made.sign(self._key, hashes.SHA256())


def replace(path: Path, content: bytes) -> None:
    """Write a private file so that no reader sees a part of it."""
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_bytes(content)
    os.replace(new, path)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)

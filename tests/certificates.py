"""Authorities, and the keys and certificates that they issue, for brokers under test."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
HOSTS = ("localhost", "127.0.0.1")


class Authority:
    """A key and a certificate that may sign others: a root, or issued by `parent`."""

    def __init__(self, name: str, parent: Authority | None = None, **how: Any) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self._parent = parent
        signer = parent or self
        self.certificate = build(name, self.key, signer.key, _issuer(parent, name), ca=True, **how)

    @property
    def pem(self) -> bytes:
        """Its certificate."""
        return pem_of(self.certificate)

    def issue(self, name: str, *, key: Any = None, **how: Any) -> bytes:
        """A key, its certificate, and the certificates of intermediate authorities, in one file."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        made = build(name, key, self.key, self.certificate.subject, **how)
        return pem_of(key) + pem_of(made) + self.intermediates

    @property
    def intermediates(self) -> bytes:
        """Its own certificate and those above it, without the root's."""
        return b"" if self._parent is None else self.pem + self._parent.intermediates


def _issuer(parent: Authority | None, name: str) -> x509.Name:
    return name_of(name) if parent is None else parent.certificate.subject


def name_of(name: str) -> x509.Name:
    """A distinguished name with a common name only."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def build(
    name: str,
    key: Any,
    signer: Any,
    issuer: x509.Name,
    *,
    ca: bool = False,
    hosts: Sequence[str] = (),
    uris: Sequence[str] = (),
    emails: Sequence[str] = (),
    uses: Sequence[x509.ObjectIdentifier] = (),
    days: tuple[float, float] = (-1, 30),
    digest: Any = None,
    signs: bool | None = None,
) -> x509.Certificate:
    """A certificate whose validity begins and ends `days` days from now.

    `signs`: whether its keyUsage has digitalSignature; None = it has no keyUsage.
    """
    now = datetime.datetime.now(datetime.UTC)
    begin, end = (now + datetime.timedelta(days=each) for each in days)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name_of(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    names: list[x509.GeneralName] = [_host(each) for each in hosts]
    names += [x509.UniformResourceIdentifier(each) for each in uris]
    names += [x509.RFC822Name(each) for each in emails]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if uses:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    if signs is not None:
        others = dict.fromkeys(
            (
                *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
                *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
            ),
            False,
        )
        usage = x509.KeyUsage(digital_signature=signs, **others)
        builder = builder.add_extension(usage, critical=True)
    return builder.sign(signer, digest or hashes.SHA256())


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def pem_of(made: Any) -> bytes:
    """A certificate or a private key in PEM."""
    if isinstance(made, x509.Certificate):
        return made.public_bytes(serialization.Encoding.PEM)
    encoded: bytes = made.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return encoded


def self_signed() -> bytes:
    """A key and a certificate that signs itself, for this machine, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = build("broker", key, key, name_of("broker"), ca=True, hosts=HOSTS)
    return pem_of(key) + pem_of(made)


def write_private(path: Path, content: bytes) -> Path:
    """Write a file that only its owner may read; returns its path."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)
    return path


def write_pair(folder: Path, name: str, pair: bytes) -> tuple[Path, Path]:
    """Write a certificate to NAME.pem and its key to NAME.key; returns their paths."""
    key, mark, certificate = pair.partition(b"-----BEGIN CERTIFICATE-----")
    path = folder / f"{name}.pem"
    path.write_bytes(mark + certificate)
    return path, write_private(folder / f"{name}.key", key)

"""The checks of `delaylog doctor tls`, on certificates that `of_tls` has read.

Pure functions: the time and the CAs of this machine are arguments. A check yields findings; without
findings it passes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from delaylog.broker.cli.doctor.findings import Checks, Finding, Found, Mark, run_checks

RSA_BITS_MIN: Final = 2_048
EC_BITS_MIN: Final = 256
SOON: Final = timedelta(days=14)
"""Time before its expiry from which a certificate is worth a warning."""
SOON_SHARE: Final = 4
"""A certificate with a short lifetime is worth a warning only in the last quarter of it."""
_WEAK_HASHES: Final = (hashes.MD5, hashes.SHA1)
_RENEW: Final = "get a new one, and replace the file: the broker reads it without a restart"


@dataclass(frozen=True, slots=True)
class Examined:
    """The certificates to check."""

    chain: Sequence[x509.Certificate]
    """The certificates of `tls-cert`, in the order of the file; the first is the broker's."""
    now: datetime
    hosts: Sequence[str] = ()
    """Names and addresses at which clients call the broker."""
    client_cas: Sequence[x509.Certificate] | None = None
    """The certificates of `tls-client-ca`; None = it is not set."""
    roots: frozenset[x509.Name] = field(default=frozenset())
    """Subjects of the CAs that this machine, or `tls-ca`, trusts."""
    roots_named: bool = False
    """Whether `tls-ca` names the roots: then a chain that does not lead to them is incomplete."""

    @property
    def leaf(self) -> x509.Certificate:
        """The broker's certificate."""
        return self.chain[0]


def examine(examined: Examined) -> list[Finding]:
    """The findings of all checks."""
    asked = examined.client_cas is not None
    checks = tuple(each for each in CHECKS if asked or each[2] is not _client_cas)
    return run_checks(checks, examined)


def _name(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string() or "a certificate without a name"


def _validity(examined: Examined) -> Found:
    for certificate in examined.chain:
        yield from _valid_now(certificate, examined.now)


def _valid_now(certificate: x509.Certificate, now: datetime) -> Found:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now >= end:
        yield Mark.FAIL, f"{_name(certificate)} expired on {end:%Y-%m-%d %H:%M} UTC", _RENEW
    elif now < begin:
        text = f"{_name(certificate)} is not valid before {begin:%Y-%m-%d %H:%M} UTC"
        yield Mark.FAIL, text, "wait until then, or look at the clock of this machine"
    elif end - now < min(SOON, (end - begin) / SOON_SHARE):
        text = f"{_name(certificate)} expires on {end:%Y-%m-%d %H:%M} UTC"
        yield Mark.WARN, text, _RENEW


def _chain(examined: Examined) -> Found:
    path, rest = _path(examined.chain)
    last = path[-1]
    if _is_ca(examined.leaf) and not all(map(_is_ca, rest)):
        text = f"the first certificate of tls-cert is that of a CA, {_name(examined.leaf)}"
        yield Mark.FAIL, text, "put the broker's certificate first, then those of its issuers"
        return
    if path != list(examined.chain[: len(path)]):
        text = "the certificates of tls-cert are not in order"
        yield Mark.WARN, text, "put each certificate before that of its issuer"
    for other in rest:
        text = f"{_name(other)} in tls-cert is no issuer of {_name(last)}"
        yield Mark.WARN, text, "remove it"
    if _issued(last, last):
        if last is examined.leaf:
            text = f"{_name(last)} signs itself: clients have to trust this very certificate"
            yield Mark.WARN, text, "use a certificate of a CA, so that it can be replaced"
    elif last.issuer not in examined.roots:
        text = f"tls-cert ends before {_issuer(last)}, a CA that this machine does not know"
        advice = "append its certificate if it is an intermediate CA; name a root by --tls-ca"
        yield Mark.FAIL if rest or examined.roots_named else Mark.WARN, text, advice


def _path(
    chain: Sequence[x509.Certificate],
) -> tuple[list[x509.Certificate], list[x509.Certificate]]:
    """The broker's certificate and its issuers, as far as they are there; and all others."""
    path, rest = [chain[0]], list(chain[1:])
    while not _issued(path[-1], path[-1]):
        issuer = next((each for each in rest if _issued(path[-1], each)), None)
        if issuer is None:
            break
        rest.remove(issuer)
        path.append(issuer)
    return path, rest


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _issuer(certificate: x509.Certificate) -> str:
    return certificate.issuer.rfc4514_string() or "an issuer without a name"


def _names(examined: Examined) -> Found:
    try:
        names = examined.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        text = f"{_name(examined.leaf)} has no subjectAltName: clients ignore its common name"
        yield Mark.FAIL, text, "issue it with the names and addresses that clients use"
        return
    dns = names.get_values_for_type(x509.DNSName)
    addresses = names.get_values_for_type(x509.IPAddress)
    for host in examined.hosts:
        if not _covers(host, dns, addresses):
            known = ", ".join([*dns, *map(str, addresses)]) or "no host"
            text = f"the certificate does not name {host}; it names {known}"
            yield Mark.FAIL, text, "issue it with that name, or have clients use another"


def _covers(host: str, dns: Sequence[str], addresses: Sequence[object]) -> bool:
    """Whether a certificate's names include a host; `*.` stands for one label."""
    try:
        return ipaddress.ip_address(host) in addresses
    except ValueError:
        host = host.lower().rstrip(".")
    _, _, parent = host.partition(".")
    return any(name.lower() in (host, f"*.{parent}") for name in dns)


def _strength(examined: Examined) -> Found:
    for certificate in examined.chain:
        yield from _strong_key(certificate)
        # A root is trusted because it is known: nobody checks its signature.
        weak = isinstance(certificate.signature_hash_algorithm, _WEAK_HASHES)
        if weak and not _issued(certificate, certificate):
            hashed = certificate.signature_hash_algorithm
            name = "" if hashed is None else hashed.name.upper()
            text = f"{_name(certificate)} is signed with {name}, which clients refuse"
            yield Mark.FAIL, text, "issue it with SHA-256"


def _strong_key(certificate: x509.Certificate) -> Found:
    key = certificate.public_key()
    kind, bits = "", 0
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < RSA_BITS_MIN:
        kind, bits = "RSA", key.key_size
    elif isinstance(key, ec.EllipticCurvePublicKey) and key.curve.key_size < EC_BITS_MIN:
        kind, bits = "EC", key.curve.key_size
    elif isinstance(key, dsa.DSAPublicKey):
        kind, bits = "DSA", key.key_size
    if kind:
        text = f"the key of {_name(certificate)} is weak: {kind} with {bits} bits"
        yield Mark.FAIL, text, f"use an EC key, or RSA with {RSA_BITS_MIN} bits"


def _use(examined: Examined) -> Found:
    leaf, extensions = examined.leaf, examined.leaf.extensions
    usable = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    try:
        uses = set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        uses = usable
    if not uses & usable:
        text = f"{_name(leaf)} is not for servers: its extendedKeyUsage lacks serverAuth"
        yield Mark.FAIL, text, "issue it for server authentication"
    try:
        usage = extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return
    if not usage.digital_signature:
        text = f"{_name(leaf)} may not sign: its keyUsage lacks digitalSignature"
        yield Mark.FAIL, text, "issue it with digitalSignature, which ECDHE needs"


def _client_cas(examined: Examined) -> Found:
    cas = examined.client_cas or ()
    may_sign = [each for each in cas if _is_ca(each)]
    if not may_sign:
        text = "tls-client-ca holds no CA: no certificate of a client can be verified"
        yield Mark.FAIL, text, "put the certificate of the CA into it that signs those of clients"
    else:
        for other in cas:
            if other not in may_sign:
                text = f"{_name(other)} in tls-client-ca is no CA"
                yield Mark.WARN, text, "remove it: it verifies no other certificate"
    for each in cas:
        yield from _valid_now(each, examined.now)


def _is_ca(certificate: x509.Certificate) -> bool:
    """Whether a certificate may sign others."""
    extensions = certificate.extensions
    try:
        if not extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        return extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound as error:
        # Without keyUsage everything is allowed; without basicConstraints it is no CA.
        return error.oid == x509.KeyUsage.oid


CHECKS: Final[Checks[Examined]] = (
    ("validity", "all certificates of tls-cert are valid for some time", _validity),
    ("chain", "the chain is complete and in order", _chain),
    ("names", "the certificate names the hosts that clients use", _names),
    ("strength", "keys and signatures are strong", _strength),
    ("use", "the certificate is for servers", _use),
    ("client CAs", "tls-client-ca holds CAs that are valid for some time", _client_cas),
)

"""Reads certificates and keys from PEM files. Errors name the setting and the file."""

from __future__ import annotations

import re
import ssl
from typing import Final

from delaylog.broker.host.settings.options import ConfigError
from delaylog.broker.host.system.private_files import read_file

FILE_BYTES_MAX: Final = 4 << 20
"""Size limit of a PEM file; the CAs of a system take 250 KB."""
_BEGIN: Final = b"-----BEGIN "
_DER_BEGINS: Final = b"\x30\x82"
"""A sequence of more than 255 bytes, as each certificate and each key in DER is one."""
_PEM: Final = re.compile("-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")


def certificates_in(name: str, path: str) -> list[bytes]:
    """The certificates of a PEM file, in DER. Raises ConfigError."""
    content = read_file(name, path, FILE_BYTES_MAX)
    text = content.decode("ascii", "replace")
    found = _PEM.findall(text)
    if not found:
        raise ConfigError(f"{name} {path} must contain certificates in PEM format{_seen(content)}")
    if len(found) != text.count("-----BEGIN CERTIFICATE-----"):
        raise _damaged(name, path)
    try:
        return [ssl.PEM_cert_to_DER_cert(each) for each in found]
    except ValueError:
        raise _damaged(name, path) from None


def trust(context: ssl.SSLContext, name: str, path: str) -> list[bytes]:
    """Trust the certificates of a PEM file, and return them in DER. Raises ConfigError."""
    certificates = certificates_in(name, path)
    try:
        context.load_verify_locations(cadata=b"".join(certificates))
    except (ssl.SSLError, ValueError):
        raise _damaged(name, path) from None
    return certificates


def load_pair(
    context: ssl.SSLContext, cert_name: str, cert: str, key_name: str, key: str | None
) -> None:
    """Load a certificate and its key. `key` None = in the certificate's file. Raises ConfigError.

    The names are those of the settings.
    """
    content = read_file(cert_name, cert, FILE_BYTES_MAX)
    if key is None:
        if b"-----BEGIN CERTIFICATE-----" in content and b"PRIVATE KEY-----" not in content:
            raise ConfigError(
                f"{cert_name} {cert} contains no private key: give its file as {key_name}"
            )
        key_name, key = cert_name, cert
    of_key = read_file(key_name, key, FILE_BYTES_MAX, private=True)

    def ask() -> str:
        raise ConfigError(f"{key_name} {key}: the key is encrypted; write it without a passphrase")

    try:
        context.load_cert_chain(cert, key, ask)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"the key of {key_name} {key} belongs to another certificate"
        elif error.reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
            why = (
                "its key or its signature, or one of its issuers', is too weak: use an EC key on "
                "P-256 or RSA with 2048 bits, and SHA-256"
            )
        else:
            why = (
                f"it must contain a certificate{_seen(content)}, and {key} a private "
                f"key{_seen(of_key)}, both in PEM format"
            )
        raise ConfigError(f"{cert_name} {cert} cannot be used: {why}") from None
    except OSError as error:
        # The file was removed since it was opened.
        raise ConfigError(f"cannot read {cert_name} {cert}: {error.strerror}") from None


def _seen(content: bytes) -> str:
    """What a file holds instead of PEM, for an error; empty if that is not known."""
    if not content.strip():
        return " (it is empty)"
    if content.startswith(_DER_BEGINS):
        return " (it is in DER: convert it with `openssl x509` or `openssl pkey -inform der`)"
    last = content.rpartition(_BEGIN)
    return " (it ends too early)" if last[1] and b"-----END " not in last[2] else ""


def _damaged(name: str, path: str) -> ConfigError:
    return ConfigError(f"{name} {path}: a certificate in it is damaged")

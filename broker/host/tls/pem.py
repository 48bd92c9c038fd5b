"""Reads the certificates of PEM files. Errors name the setting and the file."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final

from delaylog.broker.host.settings.options import ConfigError

_PEM: Final = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def read_file(name: str, path: str) -> bytes:
    """The content of a file. Raises ConfigError; OpenSSL's error would not name the file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {name} {path}: {error.strerror}") from None


def certificates_in(name: str, path: str) -> list[bytes]:
    """The certificates of a PEM file, in DER. Raises ConfigError."""
    found = _PEM.findall(read_file(name, path).decode("ascii", "replace"))
    if not found:
        raise ConfigError(f"{name} {path} must contain certificates in PEM format")
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


def _damaged(name: str, path: str) -> ConfigError:
    return ConfigError(f"{name} {path}: a certificate in it is damaged")

"""The secret of a cluster: reads it, refuses weak ones, and derives a key for each use.

A file may have two secrets, one in each line, while the nodes of a cluster exchange it one after
the other: the first is used, and both are accepted. The file is read again without a restart.

The secret itself is never used as a key. HKDF (RFC 5869) with HMAC-SHA256, salted with the
cluster's id, derives a key for each use, so a leaked key is worth nothing for another use.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from delaylog.broker.host.settings.options import ConfigError
from delaylog.broker.host.system.private_files import read_file
from delaylog.replication.errors import ClusterError

SECRET_BYTES_MIN: Final = 32
SECRET_FILE_BYTES_MAX: Final = 4096
MAKE_ONE: Final = "make one with: (umask 077; openssl rand -hex 32 > cluster.secret)"
SECRETS_MAX: Final = 2
_HEX: Final = re.compile(r"([0-9A-Fa-f]{2})+")
_WRAPPED: Final = (64, 76)
"""The lengths of lines at which programs wrap base64."""
_DISTINCT_MIN: Final = 10
"""32 random bytes have fewer distinct values than this with a probability of 10^-25."""
_SAMPLES: Final = (b"raftos sample secret key", b"raftos sample salt")
"""Published by raftos as its defaults: anybody could forge a datagram."""


class KeyUse(Enum):
    """What a derived key is for."""

    PEERS = b"delaylog peer connections"
    ELECTION = b"delaylog election"


def derive_key(secret: bytes, cluster_id: bytes, use: KeyUse) -> bytes:
    """The 32-byte key for this use in this cluster."""
    extracted = hmac.digest(cluster_id, secret, "sha256")
    return hmac.digest(extracted, use.value + b"\x01", "sha256")


@dataclass(slots=True)
class ClusterSecret:
    """The secrets of a cluster at present."""

    values: tuple[bytes, ...] = field(repr=False)
    """The first is used, all are accepted."""
    path: Path | None = None
    """Their file; None for the variable, which is not read again."""

    def __str__(self) -> str:
        """The fingerprints of the secrets, of which nobody can guess a secret of random bytes."""
        prints = [
            hmac.digest(each, b"delaylog fingerprint", "sha256")[:4].hex() for each in self.values
        ]
        return f"{prints[0]} is used" + "".join(f", {each} is accepted too" for each in prints[1:])

    @property
    def files(self) -> tuple[str, ...]:
        """The files to watch."""
        return () if self.path is None else (str(self.path),)

    def look(self) -> tuple[bytes, ...]:
        """What the file has now. Raises ClusterError."""
        return self.values if self.path is None else read_secrets(self.path)


def read_secrets(path: Path) -> tuple[bytes, ...]:
    """The secrets in a file that nobody else can read. Raises ClusterError."""
    try:
        text = read_file("secret_file", path, SECRET_FILE_BYTES_MAX, private=True)
    except ConfigError as error:
        raise ClusterError(str(error)) from None
    return parse_secrets(text.decode("utf-8", "replace"), f"secret_file {path}")


def parse_secrets(text: str, where: str) -> tuple[bytes, ...]:
    """The secrets in hex or base64: one, which may be wrapped, or one in each of two lines.

    Raises ClusterError, which never quotes the text.
    """
    lines = text.split()
    if len(lines) < 2:
        return (parse_secret(text, where),)
    whole = {line for line in lines if len(_decoded(line) or b"") >= SECRET_BYTES_MIN}
    if not whole.issuperset(lines):
        if any(map(_HEX.fullmatch, whole)):
            # Joined, the lines would be another secret than that of all other nodes.
            raise ClusterError(
                f"{where}: one line is a secret, and another one is too short for one: it needs "
                f"{SECRET_BYTES_MIN} bytes"
            )
        return (parse_secret(text, where),)
    if len(lines) > SECRETS_MAX:
        raise ClusterError(f"{where}: {len(lines)} secrets; it may have {SECRETS_MAX}, one a line")
    if len(lines[0]) in _WRAPPED and not _HEX.fullmatch(lines[0]):
        raise ClusterError(
            f"{where}: two lines of base64 may be two secrets, or one that is wrapped: write one "
            "secret in one line, and the new one of an exchange in hex"
        )
    return tuple(parse_secret(line, where) for line in lines)


def parse_secret(text: str, where: str) -> bytes:
    """The bytes of a secret in hex or base64. Raises ClusterError, which never quotes the text."""
    text = "".join(text.split())
    if not text:
        raise ClusterError(f"{where}: the secret is empty; {MAKE_ONE}")
    secret = _decoded(text)
    for sample in _SAMPLES:
        if sample in (secret or b"") or sample.replace(b" ", b"") in text.encode():
            raise ClusterError(f"{where}: this is the published sample of raftos; {MAKE_ONE}")
    if secret is None:
        raise ClusterError(f"{where}: the secret is neither hex nor base64; {MAKE_ONE}")
    if len(secret) < SECRET_BYTES_MIN:
        raise ClusterError(
            f"{where}: the secret has {len(secret)} bytes, it needs {SECRET_BYTES_MIN}; {MAKE_ONE}"
        )
    if len(set(secret)) < _DISTINCT_MIN:
        raise ClusterError(f"{where}: the secret is not random; {MAKE_ONE}")
    return secret


def _decoded(text: str) -> bytes | None:
    """Decode hex or base64. Hex is tried first, since 64 hex digits are valid base64 as well."""
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    padded = text.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None

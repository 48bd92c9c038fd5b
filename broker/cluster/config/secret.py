"""The secret of a cluster: reads it, refuses weak ones, and derives a key for each use.

The secret itself is never used as a key. HKDF (RFC 5869) with HMAC-SHA256, salted with the
cluster's id, derives a key for each use, so a leaked key is worth nothing for another use.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from enum import Enum
from pathlib import Path
from typing import Final

from delaylog.broker.host.process.private_files import private_file_fault
from delaylog.replication.errors import ClusterError

SECRET_BYTES_MIN: Final = 32
SECRET_FILE_BYTES_MAX: Final = 4096
MAKE_ONE: Final = "make one with: (umask 077; openssl rand -hex 32 > cluster.secret)"
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


def read_secret(path: Path) -> bytes:
    """The secret in a file that only its owner can read. Raises ClusterError."""
    check_private(path, "secret_file")
    try:
        with path.open("rb") as file:
            text = file.read(SECRET_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ClusterError(f"secret_file: cannot read {path}: {error.strerror}") from None
    if len(text) > SECRET_FILE_BYTES_MAX:
        raise ClusterError(f"secret_file: {path} is too large for a secret; {MAKE_ONE}")
    return parse_secret(text.decode("utf-8", "replace"), f"secret_file {path}")


def check_private(path: Path, name: str) -> None:
    """Raise ClusterError for a missing file, and for one that others can read or change."""
    fault = private_file_fault(path, name)
    if fault is not None:
        raise ClusterError(fault)


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
    if re.fullmatch(r"([0-9A-Fa-f]{2})+", text):
        return bytes.fromhex(text)
    padded = text.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None

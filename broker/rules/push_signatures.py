"""Signatures of pushes by Standard Webhooks 1.0: HMAC-SHA256 over `id.timestamp.body`.

A target may have two secrets while one replaces the other; a push then has a signature of each.
The id must not contain a full stop, or a signature of one id, time and body would also be one of
another split of the same bytes: ids of the broker contain none.

Specification: https://www.standardwebhooks.com (symmetric signatures, `v1`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Final

from multidict import istr

PREFIX: Final = "whsec_"
KEY_BYTES_MIN: Final = 24
KEY_BYTES_MAX: Final = 64
_ID: Final = istr("webhook-id")
_TIMESTAMP: Final = istr("webhook-timestamp")
_SIGNATURE: Final = istr("webhook-signature")


def parse_secret(text: str) -> bytes:
    """The key of `whsec_` and base64, padded or not. Raises ValueError without the text."""
    try:
        raw = text.removeprefix(PREFIX).rstrip("=")
        key = base64.b64decode(raw + "=" * (-len(raw) % 4), validate=True)
    except ValueError:
        key = b""
    if not text.startswith(PREFIX) or not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise ValueError(
            f"a secret is {PREFIX} and the base64 form of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes"
        )
    return key


def make_secret(random: bytes) -> str:
    """A secret of random bytes, 24 to 64."""
    assert KEY_BYTES_MIN <= len(random) <= KEY_BYTES_MAX, "the standard's bounds"
    return PREFIX + base64.b64encode(random).decode()


def shown(text: str) -> str:
    """What may be shown of a secret: a digest, by which its owner recognises it."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:16]


def make_signers(secrets: Sequence[str]) -> list[hmac.HMAC]:
    """One for each secret: the hash of its key is computed once. Raises ValueError."""
    return [hmac.new(parse_secret(secret), digestmod="sha256") for secret in secrets]


def signature_headers(
    signers: Sequence[hmac.HMAC], message_id: str, at_s: int, body: bytes
) -> list[tuple[str, str]]:
    """The headers of a push. Without signers there is no signature, but an id and a time."""
    assert "." not in message_id, "a full stop separates the signed parts"
    headers: list[tuple[str, str]] = [(_ID, message_id), (_TIMESTAMP, str(at_s))]
    if signers:
        signed = f"{message_id}.{at_s}.".encode() + body
        headers.append((_SIGNATURE, " ".join([_signature(each, signed) for each in signers])))
    return headers


def _signature(signer: hmac.HMAC, signed: bytes) -> str:
    own = signer.copy()
    own.update(signed)
    return "v1," + b2a_base64(own.digest(), newline=False).decode()

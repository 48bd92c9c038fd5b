"""The form of a token: `dlt_`, 32 random bytes in base64url, and a checksum of six base62 digits.

Secret scanners find the prefix, and the checksum tells a token from text that looks like one, as
GitHub's tokens do (https://github.blog/engineering/platform-security/behind-githubs-new-authentication-token-formats).
The broker stores only the SHA-256 of a token. A slow hash would protect nothing more: nobody
guesses 32 random bytes.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from typing import Final

PREFIX: Final = "dlt_"
RANDOM_BYTES: Final = 32
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SUM_DIGITS: Final = 6
_FORM: Final = re.compile(r"dlt_[A-Za-z0-9_-]{43}[0-9A-Za-z]{6}\Z")


def make_token(random_bytes: bytes) -> str:
    """The token for 32 bytes of a cryptographic random source."""
    if len(random_bytes) != RANDOM_BYTES:
        raise ValueError(f"a token needs {RANDOM_BYTES} random bytes, not {len(random_bytes)}")
    text = PREFIX + base64.urlsafe_b64encode(random_bytes).decode().rstrip("=")
    return text + _checksum(text)


def is_token(text: str) -> bool:
    """Whether a text has the form and the checksum of a token."""
    return bool(_FORM.match(text)) and text[-_SUM_DIGITS:] == _checksum(text[:-_SUM_DIGITS])


def digest_of(token: str) -> bytes:
    """What is stored of a token, and what it is looked up by."""
    # Text of a client may have bytes that are not UTF-8, as surrogates.
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def _checksum(text: str) -> str:
    """CRC-32 in base62, most significant digit first."""
    value, digits = zlib.crc32(text.encode()), ""
    for _ in range(_SUM_DIGITS):
        value, digit = divmod(value, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits

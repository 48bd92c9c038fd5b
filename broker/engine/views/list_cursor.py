"""Where a page of a list ended, as an opaque text that clients send back.

    0 version u8 | 1 zero u8 | 2 second u16 | 4 hour u32 | 8 due i64 | 16 index u32 | 20 chain u32
    24 blake2b of (the 24 bytes, topic, filter), 8 bytes

base64url of these 32 bytes, without padding. It is a point in the due order, and the broker stores
nothing about it, so it survives restarts. The digest binds it to its topic and filter: a cursor of
another list, or one with a changed byte, is refused. The digest is no secret: a forged cursor with
the right digest is as valid as any other.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from delaylog.broker.engine.errors import BadRequestError
from delaylog.storage.layout import HOUR_MAX, HOUR_SECONDS, INDEX_MASK

CURSOR: Final = struct.Struct("<BBHIqII")
CURSOR_SIZE: Final = 24
assert CURSOR.size == CURSOR_SIZE
CURSOR_VERSION: Final = 1
CURSOR_TEXT_SIZE: Final = 43
_DIGEST_SIZE: Final = 8
BEFORE_ALL: Final = -(2**63)
"""The due time of a cursor in front of every row of its hour."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Rows up to (hour, due, index) have been listed.

    With `chain`, the list is inside a second with very many rows, which is read newest first: of
    the rows behind (due, index), those from row number `chain` on have been listed as well.
    """

    hour: int
    due: int = BEFORE_ALL
    index: int = 0
    second: int = 0
    chain: int = 0

    def encode(self, scope: bytes) -> str:
        """The text of the cursor; `scope` identifies the list."""
        raw = CURSOR.pack(
            CURSOR_VERSION, 0, self.second, self.hour, self.due, self.index, self.chain
        )
        return base64.urlsafe_b64encode(raw + _digest(raw, scope)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, scope: bytes) -> Cursor:
        """The cursor of a text of this list. Raises BadRequestError for any other text."""
        try:
            if len(text) != CURSOR_TEXT_SIZE:
                raise ValueError
            wire = base64.b64decode(f"{text}=".encode("ascii"), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise _refused("is not a cursor") from None
        raw = wire[:CURSOR_SIZE]
        version, zero, second, hour, due, index, chain = CURSOR.unpack(raw)
        if wire[CURSOR_SIZE:] != _digest(raw, scope):
            raise _refused("belongs to another list, or was changed")
        if (
            version != CURSOR_VERSION
            or zero
            or hour > HOUR_MAX
            or second >= HOUR_SECONDS
            or max(index, chain) > INDEX_MASK
        ):
            raise _refused("names no row of a list")
        return cls(hour, due, index, second, chain)


def _digest(raw: bytes, scope: bytes) -> bytes:
    return blake2b(raw + scope, digest_size=_DIGEST_SIZE).digest()


def _refused(what: str) -> BadRequestError:
    return BadRequestError(f"cursor {what}; use one from an answer unchanged", field="cursor")

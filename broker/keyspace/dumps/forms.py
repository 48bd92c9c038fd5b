"""Constants of the format, and the error for bad payloads."""

from __future__ import annotations

from typing import Final

VERSION: Final = 10
"""The version that Redis 7.0 writes; newer ones are not read."""

STRING: Final = 0
LIST: Final = 1
SET: Final = 2
ZSET_TEXT: Final = 3
HASH: Final = 4
ZSET: Final = 5
SET_INTSET: Final = 11
HASH_LISTPACK: Final = 16
ZSET_LISTPACK: Final = 17
LIST_QUICKLIST: Final = 18

NODE_PLAIN: Final = 1
NODE_PACKED: Final = 2

INT8, INT16, INT32, LZF = range(4)


class BadDump(Exception):
    """The payload is not a value that is supported here."""
